#include "input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "mask_options.h"
#include "regard/error.h"
#include "regard/json.h"

namespace regard::cli {
namespace {

struct Closer {
  int descriptor;
  ~Closer() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

}  // namespace

// Unlike model files, texts may come from pipes: <(...) of a shell is one.
std::string read_text(const std::string& path) {
  if (path == "-") return read_standard_input(kMaxTextBytes);
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const auto complain = [&path](int error) {
    const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : error == EISDIR ? Code::kInvalidArgument : Code::kIo;
    return Error(code, fmt::format("cannot read '{}': {}", path, std::generic_category().message(error)));
  };
  if (file.descriptor < 0) throw complain(errno);
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    if (stop_token().stop_requested()) throw Error(Code::kCancelled, "stopped on request");
    const ssize_t got = ::read(file.descriptor, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw complain(errno);
    if (got == 0) return text;
    if (text.size() + static_cast<size_t>(got) > kMaxTextBytes) {
      throw Error(Code::kResourceExhausted, fmt::format("'{}' has more than {} bytes", path, kMaxTextBytes));
    }
    text.append(chunk, static_cast<size_t>(got));
  }
}

std::string read_text_input(const std::string& given, bool has_given, const std::string& path, std::string_view what) {
  if (has_given && !path.empty()) throw UsageError(fmt::format("{} is given twice, as a value and as a file", what));
  if (has_given) return given;
  if (!path.empty()) return read_text(path);
  if (is_terminal(STDIN_FILENO)) throw UsageError(fmt::format("{} is missing; give it, a file, or send it through a pipe", what));
  return read_standard_input(kMaxTextBytes);
}

void report_written(Context& context, const std::vector<WrittenArray>& arrays) {
  if (!context.arguments.flag("json")) {
    for (const WrittenArray& array : arrays) {
      context.messages.note(fmt::format("wrote {} [{}] to {}", array.type, fmt::join(array.shape, ", "), array.path));
    }
    return;
  }
  JsonWriter json;
  json.begin_object().member("schema", 1).key("files").begin_array();
  for (const WrittenArray& array : arrays) {
    json.begin_object().member("file", array.path).member("dtype", array.type).key("shape").begin_array();
    for (const int64_t extent : array.shape) json.value(extent);
    json.end();
    if (!array.columns.empty()) {
      json.key("columns").begin_array();
      for (const std::string& name : array.columns) json.value(name);
      json.end();
    }
    json.end();
  }
  context.out.write(json.end().end().finish() + "\n");
}

std::vector<int32_t> parse_ids(std::string_view text, std::string_view what) {
  std::vector<int32_t> ids;
  for (const int64_t value : parse_integers(text, what)) {
    if (value < 0 || value > INT32_MAX) throw UsageError(fmt::format("{} has {}; a token id is 0 or more", what, value));
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

Option force_option() {
  return {.name = "force", .help = "Lets an output replace a file that is there and of another kind, such as a model."};
}

std::string output_path(const Arguments& arguments, std::string_view option, std::string_view magic) {
  const std::string& path = arguments.text(option);
  if (path == "-") {
    if (is_terminal(STDOUT_FILENO)) throw UsageError(fmt::format("--{} - would write binary data to a terminal; give a file name", option));
    return "/dev/stdout";
  }
  struct stat status {};
  // A result never goes where one of the inputs lies, however either is spelt.
  if (!path.empty() && !arguments.flag("force") && stat(path.c_str(), &status) == 0)
    for (const std::string& input : arguments.input_files()) {
      struct stat other {};
      if (stat(input.c_str(), &other) == 0 && other.st_dev == status.st_dev && other.st_ino == status.st_ino && S_ISREG(status.st_mode))
        throw UsageError(fmt::format("--{} {} is an input of this command; choose another name, or say --force", option, path));
    }
  if (path.empty() || arguments.flag("force") || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    return path;
  }
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string begin(magic.size(), '\0');
  const ssize_t got = file.descriptor < 0 ? -1 : ::read(file.descriptor, begin.data(), begin.size());
  if (got == static_cast<ssize_t>(magic.size()) && begin == magic) return path;
  throw UsageError(fmt::format("--{} {} exists and is a file of another kind; choose another name, or say --force", option, path));
}

}  // namespace regard::cli
