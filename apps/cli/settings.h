// A user's own defaults, from a file: they stand between the environment and the defaults of the table.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace regard::cli {

struct Command;

/// What a settings file says, in JSON:
///
///     {
///       "threads": 2,                              of every command that has the option
///       "generate": {                              of one command, which goes before
///         "temperature": 0.7,
///         "stop": ["END", "###"]                   of an option that may be repeated
///       },
///       "mask draw": {"q-len": 16}
///     }
class Settings {
 public:
  /// Nothing is set.
  Settings() = default;
  /// Errors: UsageError for what is not JSON of this form, and for a name that is no command or no option of it, with what was
  /// probably meant; Error when the file cannot be read.
  static Settings load(const std::string& path);
  /// The user's file when there is one: settings.json in $XDG_CONFIG_HOME/regard, or in ~/.config/regard.
  static Settings load_users();

  /// The values of an option, or null.
  const std::vector<std::string>* find(const Command& command, std::string_view option) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::map<std::string, std::vector<std::string>> values_;  ///< by "command/option", for all commands "/option"
};

}  // namespace regard::cli
