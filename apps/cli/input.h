// Where texts, ids and output files come from: options, files, standard input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"

namespace regard::cli {

/// Bytes of a text file or of standard input that are read at most.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

/// The bytes of a file; "-" is standard input. Errors: Error as of the system, UsageError for a directory.
std::string read_text(const std::string& path);

/// The bytes of a file that is read again or written again, so that it cannot be a pipe. Errors: Error as of the system, kInvalidArgument
/// for what is no regular file.
std::string read_regular(const std::string& path);

/// Before any work: two texts cannot both be standard input, two outputs not one file. Errors: UsageError.
void check_files(const Arguments& arguments);

/// Before any work: whether a file can be made at `path`. Errors: Error as writing it would give.
void check_place(const std::string& path);

/// A text from, in this order: the positional or option value `given`, the file `path`, or standard input when it is not a
/// terminal. Errors: UsageError that says `what` is missing on a terminal, so that nobody waits in silence.
std::string read_text_input(const std::string& given, bool has_given, const std::string& path, std::string_view what);

/// A .npy file that a command wrote. Reported on standard output with --json, else as a note.
struct WrittenArray {
  std::string path;
  std::string type;  ///< as NumPy names it
  std::vector<int64_t> shape;
  std::vector<std::string> columns = {};  ///< names of the numbers along the last axis; empty: they have none
};
void report_written(Context& context, const std::vector<WrittenArray>& arrays);

/// "1 2 3", also with commas, as token ids. Errors: UsageError that begins with `what`.
std::vector<int32_t> parse_ids(std::string_view text, std::string_view what);

/// The options --force and what checks it: an output may replace a file of the same kind ("\x93NUMPY", "\x89PNG"), but to
/// replace anything else, such as a model, one has to say so. "-" becomes standard output. Errors: UsageError; those of check_place().
Option force_option();
std::string output_path(const Arguments& arguments, std::string_view option, std::string_view magic);
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
inline constexpr std::string_view kPngMagic = "\x89PNG";
inline constexpr std::string_view kJsonMagic = "{";

}  // namespace regard::cli
