#include "input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
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

std::string reason(int error) { return std::generic_category().message(error); }

// The file that a name stands for, or would stand for once it is made.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;  // below that directory; empty where the file is there
  bool endless = false;  // /dev/null and its kind take any number of results
  bool known = false;

  bool operator==(const Identity& other) const {
    return known && other.known && !endless && device == other.device && inode == other.inode && name == other.name;
  }
};

std::string directory_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Identity identify(const std::string& path) {
  struct stat status {};
  Identity file;
  if (path == "-" ? fstat(STDOUT_FILENO, &status) == 0 : stat(path.c_str(), &status) == 0) {
    file.endless = S_ISCHR(status.st_mode);
  } else if (stat(directory_of(path).c_str(), &status) == 0) {
    file.name = path.substr(path.find_last_of('/') + 1);
  } else {
    return file;
  }
  file.device = status.st_dev;
  file.inode = status.st_ino;
  file.known = true;
  return file;
}

enum class Pipes { kTake, kRefuse };

// Waits for data in short steps: a signal that comes just before a read that blocks would not be seen.
std::string read_all(const std::string& path, Pipes pipes) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  const auto complain = [&path](int error) {
    const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : error == EISDIR ? Code::kInvalidArgument : Code::kIo;
    return Error(code, fmt::format("cannot read '{}': {}", path, reason(error)));
  };
  if (file.descriptor < 0) throw complain(errno);
  struct stat status {};
  if (pipes == Pipes::kRefuse && fstat(file.descriptor, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    throw Error(Code::kInvalidArgument, fmt::format("'{}' is {}; give a regular file", path, S_ISFIFO(status.st_mode) ? "a pipe" : "no regular file"));
  }
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    pollfd wait{file.descriptor, POLLIN, 0};
    const int ready = poll(&wait, 1, kLookForSignalsEveryMs);
    if (stop_token().stop_requested()) throw Error(Code::kCancelled, "stopped on request");
    if (ready <= 0) continue;
    const ssize_t got = ::read(file.descriptor, chunk, sizeof chunk);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) throw complain(errno);
    if (got == 0) return text;
    if (text.size() + static_cast<size_t>(got) > kMaxTextBytes) {
      throw Error(Code::kResourceExhausted, fmt::format("'{}' has more than {} bytes", path, kMaxTextBytes));
    }
    text.append(chunk, static_cast<size_t>(got));
  }
}

}  // namespace

// Unlike model files, texts may come from pipes: <(...) of a shell is one.
std::string read_text(const std::string& path) {
  return path == "-" ? read_standard_input(kMaxTextBytes) : read_all(path, Pipes::kTake);
}

std::string read_regular(const std::string& path) { return read_all(path, Pipes::kRefuse); }

void check_files(const Arguments& arguments) {
  const std::vector<std::string> inputs = arguments.input_files();
  if (std::count(inputs.begin(), inputs.end(), "-") > 1) throw UsageError("two inputs are -, and there is one standard input; give a file for one of them");
  const std::vector<Arguments::OutputFile> outputs = arguments.output_files();
  std::vector<Identity> seen;
  for (size_t i = 0; i < outputs.size(); ++i) {
    seen.push_back(identify(outputs[i].path));
    for (size_t k = 0; k < i; ++k)
      if (seen[k] == seen[i] && !(outputs[k].path == "-" && outputs[i].path == "-"))
        throw UsageError(fmt::format("--{} and --{} are one file, {}; give each its own", outputs[k].option, outputs[i].option, outputs[i].path));
  }
}

void check_place(const std::string& path) {
  struct stat status {};
  const bool there = stat(path.c_str(), &status) == 0;
  if (there && S_ISDIR(status.st_mode)) throw Error(Code::kInvalidArgument, fmt::format("'{}' is a directory; give the name of a file", path));
  if (there && !S_ISREG(status.st_mode)) return;
  std::string place = path;
  if (const std::unique_ptr<char, void (*)(void*)> target(realpath(path.c_str(), nullptr), ::free); target != nullptr) place = target.get();
  const std::string directory = directory_of(place);
  const int error = stat(directory.c_str(), &status) != 0 ? errno : !S_ISDIR(status.st_mode) ? ENOTDIR : access(directory.c_str(), W_OK | X_OK) != 0 ? errno : 0;
  if (error != 0)
    throw Error(error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kIo, fmt::format("cannot create a file beside '{}': {}", path, reason(error)));
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
  if (!path.empty()) check_place(path);
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
