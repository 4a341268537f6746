#include "settings.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "command.h"
#include "input.h"

namespace regard::cli {
namespace {

using Json = nlohmann::ordered_json;

// These decide what the program does, not how.
bool belongs_on_the_line(std::string_view option) { return option == "help" || option == "print-config" || option == "settings"; }

// The options of a command; of all commands for an empty name.
std::vector<std::string> option_names(std::string_view name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (!name.empty() && command.name != name) continue;
    for (const Option& option : all_options(command))
      if (!belongs_on_the_line(option.name)) names.emplace_back(option.name);
  }
  return names;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

// One file while it is read: every complaint names it.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {}

  Json parse() const {
    const std::string text = read();
    std::vector<std::set<std::string>> open;  // the names of each object that is not closed yet
    try {
      return Json::parse(text, [&](int, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        if (event == Json::parse_event_t::object_end) open.pop_back();
        if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
          refuse(fmt::format("'{}' stands there twice", parsed.get<std::string>()));
        return true;
      });
    } catch (const Json::parse_error& error) {
      refuse(fmt::format("not JSON, at byte {}", error.byte));
    } catch (const Json::out_of_range&) {  // such as 1e999
      refuse("a number is too large");
    }
  }

  void expect_known(std::string_view what, const std::string& word, const std::vector<std::string>& known) const {
    if (std::find(known.begin(), known.end(), word) != known.end()) return;
    const std::string meant = nearest(word, known);
    refuse(fmt::format("unknown {} '{}'{}", what, word, meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)));
  }

  // A value as it would stand on the command line.
  std::string word(const std::string& name, const Json& value) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean() || value.is_number()) return value.dump();
    refuse(fmt::format("the value of '{}' is {}; give a text, a number, true, false, or an array of these", name,
                       value.is_null() ? "null" : fmt::format("an {}", value.type_name())));
  }

  std::vector<std::string> words(const std::string& name, const Json& value) const {
    if (!value.is_array()) return {word(name, value)};
    if (value.empty()) refuse(fmt::format("'{}' has no value", name));
    std::vector<std::string> all;
    for (const Json& one : value) all.push_back(word(name, one));
    return all;
  }

  [[noreturn]] void refuse(const std::string& says) const { throw UsageError(fmt::format("{}: {}", path_, says)); }

 private:
  // Every command waits for this file, so it must not be a pipe or grow without end.
  std::string read() const {
    struct stat found = {};
    if (::stat(path_.c_str(), &found) == 0) {
      if (!S_ISREG(found.st_mode)) refuse("not a regular file");
      if (found.st_size > kMaxBytes) refuse(fmt::format("{} bytes; settings have at most {}", found.st_size, kMaxBytes));
    }
    return read_text(path_);
  }

  static constexpr off_t kMaxBytes = 1 << 20;
  const std::string& path_;
};

// {"mask": {"draw": ...}}: the two words of a command are one name here.
void expect_whole_name(const File& file, const std::string& name, const Json& value) {
  std::vector<std::string> names;
  for (const Command& command : commands())
    if (command.name.starts_with(name + " ")) names.emplace_back(command.name);
  if (names.empty()) return;
  std::string meant = names.front();
  for (const auto& [word, options] : value.items())
    for (const std::string& whole : names)
      if (whole == name + " " + word) meant = whole;
  file.refuse(fmt::format("'{}' is the first word of several commands; write \"{}\": {{...}}", name, meant));
}

}  // namespace

Settings Settings::load(const std::string& path) {
  Settings settings;
  settings.path_ = path;
  const File file(path);
  const Json all = file.parse();
  if (!all.is_object()) file.refuse("not a JSON object, such as {\"threads\": 2, \"generate\": {\"seed\": 7}}");
  for (const auto& [name, value] : all.items()) {
    if (!value.is_object()) {
      file.expect_known("option", name, option_names(""));
      settings.values_.emplace("/" + name, file.words(name, value));
      continue;
    }
    expect_whole_name(file, name, value);
    file.expect_known("command", name, command_names());
    for (const auto& [option, one] : value.items()) {
      file.expect_known(fmt::format("option of {}", name), option, option_names(name));
      settings.values_.emplace(name + "/" + option, file.words(option, one));
    }
  }
  return settings;
}

Settings Settings::load_users() {
  const char* base = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  std::string path;
  if (base != nullptr && *base == '/') {  // a relative one is to be passed over, says the XDG base directory specification
    path = base;
  } else if (home != nullptr && *home != '\0') {
    path = fmt::format("{}/.config", home);
  } else {
    return {};
  }
  path += "/regard/settings.json";
  struct stat found = {};
  return ::stat(path.c_str(), &found) == 0 ? load(path) : Settings();
}

const std::vector<std::string>* Settings::find(const Command& command, std::string_view option) const {
  for (const std::string_view name : {command.name, std::string_view()})
    if (const auto found = values_.find(fmt::format("{}/{}", name, option)); found != values_.end()) return &found->second;
  return nullptr;
}

}  // namespace regard::cli
