// The values of a command's options: from the command line, else the environment, else the user's settings, else the default of the table.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "option.h"
#include "terminal.h"

namespace regard::cli {

struct Command;

/// The command line is wrong: exit status 2. The message is a sentence for the user.
class UsageError : public std::runtime_error {
 public:
  /// Printable at once: what() would end at a zero byte.
  explicit UsageError(const std::string& message) : std::runtime_error(printable_message(message)) {}
};

/// Where a value came from.
enum class Source { kNone, kCommandLine, kEnvironment, kSettings, kDefault };

/// Checked values, looked up by the names of the table. Asking for a name or type that the table does not have is a fault of
/// the program (std::logic_error), not of the user.
class Arguments {
 public:
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  uint64_t natural(std::string_view name) const;
  double number(std::string_view name) const;
  /// Text, file names and choices; empty when not given.
  const std::string& text(std::string_view name) const;
  /// All values of an option that may be repeated.
  const std::vector<std::string>& list(std::string_view name) const;
  /// Whether a value is there, from wherever.
  bool has(std::string_view name) const;
  /// The values of all options and positionals that name input files, and of options that name output files.
  std::vector<std::string> input_files() const;
  struct OutputFile {
    std::string_view option;
    std::string path;
  };
  std::vector<OutputFile> output_files() const;
  Source source(std::string_view name) const;
  /// The positional value, empty when not given.
  const std::string& positional(std::string_view name) const;
  /// All values of a positional that may be repeated.
  const std::vector<std::string>& positional_list(std::string_view name) const;
  bool has_positional(std::string_view name) const { return positionals_.contains(name); }

 private:
  friend Arguments read_arguments(const Command& command, const std::vector<std::string>& words);
  struct Entry {
    Option option;
    Source source = Source::kNone;
    std::vector<std::string> values;
  };
  const Entry& entry(std::string_view name) const;

  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::vector<std::string>, std::less<>> positionals_;
  std::vector<std::string> positional_files_;
};

/// Reads the words behind the command's name. Errors: UsageError. Required values are not asked for when --help or
/// --print-config is there.
Arguments read_arguments(const Command& command, const std::vector<std::string>& words);

/// Whole and decimal numbers as every part of the program reads them. Errors: UsageError that begins with `what`.
int64_t parse_integer(std::string_view text, std::string_view what);
uint64_t parse_natural(std::string_view text, std::string_view what);
double parse_number(std::string_view text, std::string_view what);

}  // namespace regard::cli
