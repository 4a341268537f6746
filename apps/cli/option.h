// The option table: what is written here is what the parser checks, the help shows, the reference page prints and the
// shells complete. Nothing about an option is said twice.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace regard::cli {

enum class Type {
  kFlag,        ///< takes no value
  kInteger,     ///< a whole number
  kNumber,      ///< a decimal number, with a point whatever the locale
  kText,
  kInputFile,
  kOutputFile,
  kChoice,      ///< one word out of `choices`
  kNatural,     ///< a whole number of 64 bits without a sign: a seed
};

enum class Presence { kOptional, kRequired };
enum class Repeat { kOnce, kMany };
enum class Section { kCommon, kMore };

struct Option {
  std::string_view name;  ///< without dashes; the environment name is made from it, see environment_name()
  char letter = 0;        ///< the short form, or 0
  Type type = Type::kFlag;
  std::string_view value = "";    ///< what the help calls the value: N, FILE, TEXT ...
  std::string_view help = "";
  std::string_view unit = "";
  std::string_view fallback = "";  ///< the value when nobody gives one; empty: none
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view choices = "";   ///< words separated by '|'
  Presence presence = Presence::kOptional;
  Repeat repeat = Repeat::kOnce;
  Section section = Section::kMore;
};

/// A value without a name, taken in the order of the table. The last one may be given many times.
struct Positional {
  std::string_view name;
  std::string_view help;
  Presence presence = Presence::kRequired;
  Repeat repeat = Repeat::kOnce;
  Type type = Type::kText;
};

/// "max-tokens" is REGARD_MAX_TOKENS.
std::string environment_name(std::string_view option);

std::vector<std::string> split(std::string_view text, char separator);

/// What one line of help says behind the text of an option: "[N; 1 to 1024 threads; default 4; REGARD_THREADS]".
std::string describe_value(const Option& option);

/// The word of `known` that `word` was probably meant to be, or an empty string. Counts letters left out, added, replaced and
/// swapped; a word that shares nothing is not offered.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace regard::cli
