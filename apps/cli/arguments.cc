// CLI11 cuts the command line into options and values; which options there are comes from the table, and what is wrong is
// said in our own words, because CLI11's neither name the option that was meant nor keep to one exit status.
#include "arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "command.h"
#include "settings.h"

namespace regard::cli {
namespace {

template <class... Args>
[[noreturn]] void usage_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() && std::isfinite(value);
}

std::string cli11_names(const Option& option) {
  return option.letter != 0 ? fmt::format("-{},--{}", option.letter, option.name) : fmt::format("--{}", option.name);
}

// As the help writes it.
std::string shown_names(const Option& option) {
  return option.letter != 0 ? fmt::format("-{}, --{}", option.letter, option.name) : fmt::format("--{}", option.name);
}

std::string range_text(const Option& option) {
  const std::string unit = option.unit.empty() ? "" : fmt::format(" {}", option.unit);
  if (!std::isfinite(option.max)) return fmt::format("{} or more{}", option.min, unit);
  return fmt::format("{} to {}{}", option.min, option.max, unit);
}

void check_value(const Option& option, const std::string& value, const std::string& what) {
  switch (option.type) {
    case Type::kFlag:
      if (value != "true" && value != "false") usage_error("{} is a switch; '{}' is not true or false", what, value);
      break;
    case Type::kInteger:
    case Type::kNumber: {
      const double number = option.type == Type::kInteger ? static_cast<double>(parse_integer(value, what)) : parse_number(value, what);
      if (number < option.min || number > option.max) usage_error("{} is {}; give {}", what, value, range_text(option));
      break;
    }
    case Type::kNatural: parse_natural(value, what); break;
    case Type::kChoice: {
      const std::vector<std::string> words = split(option.choices, '|');
      if (std::find(words.begin(), words.end(), value) != words.end()) break;
      const std::string meant = is_number(value) ? "" : nearest(value, words);  // 6 is no slip of the pen for 5
      usage_error("{} is '{}'; {}give one of {}", what, value, meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                  fmt::join(words, ", "));
    }
    case Type::kInputFile:
    case Type::kOutputFile:
      if (value.empty()) usage_error("{} is empty; give a file name", what);
      break;
    case Type::kText: break;
  }
}

// Off the command line a switch may also be written 1, yes, on and 0, no, off.
std::string written_flag(std::string_view value) {
  for (const char* yes : {"1", "true", "yes", "on"})
    if (value == yes) return "true";
  for (const char* no : {"0", "false", "no", "off"})
    if (value == no) return "false";
  return std::string(value);
}

std::string meant_option(const std::string& word, const std::vector<Option>& options) {
  std::vector<std::string> names;
  for (const Option& option : options) names.emplace_back(option.name);
  const size_t begin = word.find_first_not_of('-');
  if (begin == std::string::npos) return {};
  const std::string given = word.substr(begin, word.find('=') - begin);
  std::string meant = nearest(given, names);
  // Where a command writes one file, its option is what other programs call --out.
  if (meant.empty() && (given == "out" || given == "output" || given == "o")) {
    const auto writes = [](const Option& option) { return option.type == Type::kOutputFile; };
    if (std::count_if(options.begin(), options.end(), writes) == 1) meant = std::find_if(options.begin(), options.end(), writes)->name;
  }
  return meant.empty() ? "" : fmt::format("; did you mean --{}?", meant);
}

}  // namespace

int64_t parse_integer(std::string_view text, std::string_view what) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) usage_error("{} is {}, which is too large", what, text);
  if (error != std::errc() || stop != end || text.empty()) usage_error("{} is '{}'; give a whole number", what, text);
  return value;
}

uint64_t parse_natural(std::string_view text, std::string_view what) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) usage_error("{} is {}, which is too large; give 0 to {}", what, text, UINT64_MAX);
  if (error != std::errc() || stop != end || text.empty()) usage_error("{} is '{}'; give a whole number, 0 to {}", what, text, UINT64_MAX);
  return value;
}

double parse_number(std::string_view text, std::string_view what) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty() || !std::isfinite(value)) {
    usage_error("{} is '{}'; give a number, with a point: 0.5", what, text);
  }
  return value;
}

Arguments read_arguments(const Command& command, const std::vector<std::string>& words) {
  const std::vector<Option> options = all_options(command);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::map<std::string_view, std::vector<std::string>> given;
  std::map<std::string_view, CLI::Option*> parsed;
  for (const Option& option : options) {
    if (option.type == Type::kFlag) {
      parsed[option.name] = app.add_flag(cli11_names(option));
    } else {
      parsed[option.name] = app.add_option(cli11_names(option), given[option.name])->expected(1)->allow_extra_args(false)->take_all();
    }
  }
  // CLI11 wants the words last first.
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    usage_error("{} needs a value", text.substr(0, text.find(':')));
  } catch (const CLI::ParseError& error) {
    usage_error("{}", error.what());
  }

  const auto given_or_in_environment = [&](std::string_view name) -> std::string {
    if (parsed[name]->count() > 0) return parsed[name]->results().back();
    const char* environment = std::getenv(environment_name(name).c_str());
    return environment == nullptr ? "" : environment;
  };
  Settings settings;
  if (parsed["help"]->count() == 0) {  // a broken file must not keep anyone from the help
    const std::string file = given_or_in_environment("settings");
    settings = file.empty() ? Settings::load_users() : Settings::load(file);
  }

  Arguments arguments;
  for (const Option& option : options) {
    Arguments::Entry entry{option, Source::kNone, {}};
    const std::vector<std::string>* set = settings.find(command, option.name);
    const CLI::Option* on_line = parsed[option.name];
    const std::string variable = environment_name(option.name);
    const char* environment = std::getenv(variable.c_str());
    std::string what = fmt::format("--{}", option.name);
    if (on_line->count() > 0) {
      entry.source = Source::kCommandLine;
      entry.values = option.type == Type::kFlag ? std::vector<std::string>{on_line->results().back()} : on_line->results();
      if (option.repeat == Repeat::kOnce && option.type != Type::kFlag && entry.values.size() > 1) usage_error("{} is given more than once", what);
    } else if (environment != nullptr && *environment != '\0') {
      entry.source = Source::kEnvironment;
      entry.values = {option.type == Type::kFlag ? written_flag(environment) : std::string(environment)};
      what = variable;
    } else if (set != nullptr) {
      entry.source = Source::kSettings;
      entry.values = *set;
      what = fmt::format("{} of {}", option.name, settings.path());
      if (option.repeat == Repeat::kOnce && set->size() > 1) usage_error("{} has {} values; give one", what, set->size());
      if (option.type == Type::kFlag) entry.values = {written_flag(set->front())};
    } else if (!option.fallback.empty()) {
      entry.source = Source::kDefault;
      entry.values = {std::string(option.fallback)};
    }
    for (const std::string& value : entry.values) check_value(option, value, what);
    arguments.entries_.emplace(std::string(option.name), std::move(entry));
  }

  std::vector<std::string> rest;
  bool only_values = false;  // behind "--" a word with a dash is a value
  for (const std::string& word : app.remaining()) {
    if (word == "--" && !only_values) {
      only_values = true;
    } else if (word.size() > 1 && word[0] == '-' && !only_values && !(is_number(word) && rest.size() < command.positionals.size())) {
      usage_error("unknown option {}{}", word.substr(0, word.find('=')), meant_option(word, options));
    } else {
      rest.push_back(word);
    }
  }
  const bool only_shows = arguments.flag("help") || arguments.flag("print-config");
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    const Positional& positional = command.positionals[i];
    if (i < rest.size()) {
      const bool all = positional.repeat == Repeat::kMany;
      const auto first = rest.begin() + static_cast<std::ptrdiff_t>(i);
      const std::vector<std::string> values(first, all ? rest.end() : first + 1);
      if (positional.type == Type::kInputFile) {
        arguments.positional_files_.insert(arguments.positional_files_.end(), values.begin(), values.end());
      }
      arguments.positionals_.emplace(std::string(positional.name), values);
    } else if (positional.presence == Presence::kRequired && !only_shows) {
      usage_error("{} is missing: {}", positional.name, positional.help);
    }
  }
  const bool takes_all = !command.positionals.empty() && command.positionals.back().repeat == Repeat::kMany;
  if (rest.size() > command.positionals.size() && !takes_all && !only_shows) {
    const std::string& extra = rest[command.positionals.size()];
    const bool takes_model = std::any_of(options.begin(), options.end(), [](const Option& option) { return option.name == "model"; });
    const bool model = rest.size() == 1 && command.positionals.empty() && takes_model && !arguments.has("model");
    if (model) usage_error("'{}' stands alone; is it the model? give it as -m {}", extra, extra);
    usage_error("'{}' is one value too many; quote a text that has spaces", extra);
  }
  if (!only_shows) {
    for (const Option& option : options) {
      if (option.presence == Presence::kRequired && !arguments.has(option.name)) {
        usage_error("{} is missing; give it, or set {}", shown_names(option), environment_name(option.name));
      }
    }
  }
  return arguments;
}

const Arguments::Entry& Arguments::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw std::logic_error(fmt::format("the table has no option {}", name));
  return found->second;
}

bool Arguments::flag(std::string_view name) const {
  const Entry& e = entry(name);
  return !e.values.empty() && e.values.back() == "true";
}

int64_t Arguments::integer(std::string_view name) const {
  const Entry& e = entry(name);
  if (e.values.empty()) throw std::logic_error(fmt::format("option {} has no value", name));
  return parse_integer(e.values.back(), name);
}

uint64_t Arguments::natural(std::string_view name) const {
  const Entry& e = entry(name);
  if (e.values.empty()) throw std::logic_error(fmt::format("option {} has no value", name));
  return parse_natural(e.values.back(), name);
}

double Arguments::number(std::string_view name) const {
  const Entry& e = entry(name);
  if (e.values.empty()) throw std::logic_error(fmt::format("option {} has no value", name));
  return parse_number(e.values.back(), name);
}

const std::string& Arguments::text(std::string_view name) const {
  static const std::string nothing;
  const Entry& e = entry(name);
  return e.values.empty() ? nothing : e.values.back();
}

const std::vector<std::string>& Arguments::list(std::string_view name) const { return entry(name).values; }

std::vector<Arguments::OutputFile> Arguments::output_files() const {
  std::vector<OutputFile> files;
  for (const auto& [name, entry] : entries_)
    if (entry.option.type == Type::kOutputFile)
      for (const std::string& path : entry.values) files.push_back({entry.option.name, path});
  return files;
}

std::vector<std::string> Arguments::input_files() const {
  std::vector<std::string> files = positional_files_;
  for (const auto& [name, entry] : entries_)
    if (entry.option.type == Type::kInputFile) files.insert(files.end(), entry.values.begin(), entry.values.end());
  return files;
}

bool Arguments::has(std::string_view name) const { return !entry(name).values.empty(); }
Source Arguments::source(std::string_view name) const { return entry(name).source; }

const std::string& Arguments::positional(std::string_view name) const {
  static const std::string nothing;
  const std::vector<std::string>& values = positional_list(name);
  return values.empty() ? nothing : values.front();
}

const std::vector<std::string>& Arguments::positional_list(std::string_view name) const {
  static const std::vector<std::string> nothing;
  const auto found = positionals_.find(name);
  return found == positionals_.end() ? nothing : found->second;
}

}  // namespace regard::cli
