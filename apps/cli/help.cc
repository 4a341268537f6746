#include "help.h"

#include <fmt/format.h>

#include <algorithm>

#include "regard/error.h"

namespace regard::cli {
namespace {

constexpr size_t kHelpColumn = 28;  // where the texts of options begin

// "  -m, --model FILE"
std::string option_head(const Option& option) {
  std::string head = option.letter != 0 ? fmt::format("  -{}, --{}", option.letter, option.name) : fmt::format("      --{}", option.name);
  if (!option.value.empty()) head += fmt::format(" {}", option.value);
  return head;
}

std::string choices_text(const Option& option) {
  return option.choices.empty() ? "" : fmt::format(" ({})", fmt::join(split(option.choices, '|'), ", "));
}

std::string option_help(const Option& option) {
  std::string head = option_head(option);
  std::string body = wrap(fmt::format("{}{} {}", option.help, choices_text(option), describe_value(option)), kHelpColumn);
  if (head.size() + 2 > kHelpColumn) return head + "\n" + body;
  body.replace(0, head.size(), head);  // the first line of the body is indented by at least that much
  return body;
}

// A line to type, continued on the next one where it would be too long; an option begins there, so no quoted text is cut.
std::string example_line(std::string_view line) {
  std::string out = "  ";
  size_t column = 2;
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find(" -", begin + 1), line.size());
    if (column + (end - begin) > 77 && begin > 0) {
      out += " \\\n     ";
      column = 5;
    }
    out += line.substr(begin, end - begin);
    column += end - begin;
    begin = end;
  }
  return out + "\n";
}

std::string usage_line(const Command& command) {
  std::string line = fmt::format("usage: regard {}", command.name);
  for (const Positional& positional : command.positionals) {
    const bool required = positional.presence == Presence::kRequired;
    const std::string name = fmt::format("{}{}", positional.name, positional.repeat == Repeat::kMany ? "..." : "");
    line += required ? fmt::format(" {}", name) : fmt::format(" [{}]", name);
  }
  for (const Option& option : command.options) {
    if (option.presence != Presence::kRequired) continue;
    line += option.letter != 0 ? fmt::format(" -{} {}", option.letter, option.value) : fmt::format(" --{} {}", option.name, option.value);
  }
  return line + " [options]\n";
}

std::string section_help(const Command& command, Section section, std::string_view title) {
  std::string text;
  for (const Option& option : command.options) {
    if (option.section == section || (section == Section::kCommon && option.presence == Presence::kRequired)) {
      if (section == Section::kMore && option.presence == Presence::kRequired) continue;
      text += option_help(option);
    }
  }
  return text.empty() ? text : fmt::format("\n{}:\n{}", title, text);
}

std::string group_of(const Command& command) {
  const size_t space = command.name.find(' ');
  return std::string(command.name.substr(0, space));
}

// One line per command; those of a group together.
std::string command_list() {
  std::string text;
  for (const Command& command : commands()) text += fmt::format("  {:<16} {}\n", command.name, command.summary);
  return text;
}

struct Status {
  int code;
  const char* says;
};
constexpr Status kStatuses[] = {
    {0, "success"},
    {exit_status(Code::kFailedCheck), "a check ran, and the answer is no"},
    {exit_status(Code::kInvalidArgument), "wrong usage: an option, a shape, a range"},
    {exit_status(Code::kNotFound), "a file, model or tensor is not there"},
    {exit_status(Code::kCorruptData), "a file is there but wrong"},
    {exit_status(Code::kResourceExhausted), "not enough memory, or a stated limit is passed"},
    {exit_status(Code::kUnavailable), "in use: another process trains in this directory"},
    {exit_status(Code::kNumeric), "NaN or infinity where a number is needed"},
    {exit_status(Code::kUnsupported), "valid, but not implemented"},
    {exit_status(Code::kIo), "reading or writing failed"},
    {exit_status(Code::kInternal), "a fault of this program; please report it"},
    {130, "stopped by Ctrl-C (SIGINT)"},
    {141, "the reader of standard output went away"},
    {143, "stopped by SIGTERM"},
};

// Table cells must not end at a bar of their text.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string markdown_options(const std::vector<Option>& options) {
  std::string text = "| option | meaning | value |\n| --- | --- | --- |\n";
  for (const Option& option : options) {
    std::string names = option.letter != 0 ? fmt::format("`-{}`, ", option.letter) : "";
    names += option.value.empty() ? fmt::format("`--{}`", option.name) : fmt::format("`--{} {}`", option.name, option.value);
    std::string value = describe_value(option);
    value = value.substr(1, value.size() - 2);
    value.replace(value.rfind(environment_name(option.name)), std::string::npos, fmt::format("`{}`", environment_name(option.name)));
    text += fmt::format("| {} | {} | {} |\n", cell(names), cell(fmt::format("{}{}", option.help, choices_text(option))), cell(value));
  }
  return text;
}

}  // namespace

std::string wrap(std::string_view text, size_t indent, size_t width) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line(indent, ' ');
    bool first = true;
    for (const std::string& word : split(text.substr(begin, end - begin), ' ')) {
      if (!first && line.size() + 1 + word.size() > width) {
        out += line + "\n";
        line = std::string(indent, ' ');
        first = true;
      }
      if (!first) line += ' ';
      line += word;
      first = false;
    }
    out += (first ? "" : line) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string program_help() {
  return "usage: regard COMMAND [options]\n\n" +
         wrap("Exact attention on CPUs: runs published language models from their own files, and shows which token may look at which.", 0) +
         "\nexamples:\n"
         "  regard generate -m model.gguf -p \"The sea\"\n"
         "      Continues a text.\n"
         "  regard mask draw \"causal & window(3, 0)\" --q-len 8\n"
         "      Draws who may look at whom.\n"
         "\ncommands:\n" +
         command_list() +
         "\n'regard COMMAND --help' tells more; so does 'regard help COMMAND'. Every option\n"
         "may also be set in the environment: --max-tokens is REGARD_MAX_TOKENS. The\n"
         "command line wins. The program opens no network connection.\n";
}

std::string group_help(std::string_view group) {
  std::string text = fmt::format("usage: regard {} COMMAND [options]\n\nexamples:\n", group);
  std::string list;
  size_t examples = 0;
  for (const Command& command : commands()) {
    if (group_of(command) != group) continue;
    list += fmt::format("  {:<16} {}\n", command.name, command.summary);
    if (examples++ < 2) text += example_line(command.examples.front().line) + wrap(command.examples.front().says, 6);
  }
  return fmt::format("{}\ncommands:\n{}\n'regard {} COMMAND --help' tells more.\n", text, list, group);
}

std::string command_help(const Command& command) {
  std::string text = usage_line(command) + "\n" + wrap(command.description, 0) + "\nexamples:\n";
  for (const Example& example : command.examples) text += example_line(example.line) + wrap(example.says, 6);
  if (!command.positionals.empty()) {
    text += "\nvalues:\n";
    for (const Positional& positional : command.positionals) {
      std::string body = wrap(positional.help, kHelpColumn);
      const std::string head = fmt::format("  {}", positional.name);
      body.replace(0, head.size(), head);
      text += body;
    }
  }
  text += section_help(command, Section::kCommon, "common options");
  text += section_help(command, Section::kMore, "more options");
  text += "\noptions of every command:\n";
  for (const Option& option : common_options()) text += option_help(option);
  return text;
}

std::string markdown_reference() {
  std::string text =
      "# The command line\n\n"
      "This page is made by `regard help --markdown` from the table that the program itself uses; a test fails when it is old.\n\n"
      "Data goes to standard output; messages, warnings and progress go to standard error. A value comes from the command line, "
      "else from the environment, else from the settings file, else from the default. Numbers are written with a point, whatever the locale. "
      "`-` as a file name means standard input or output where the option says so. "
      "The program opens no network connection.\n\n"
      "## Exit status\n\n| status | meaning |\n| --- | --- |\n";
  for (const Status& status : kStatuses) text += fmt::format("| {} | {} |\n", status.code, status.says);
  text += "\n## Options of every command\n\n" + markdown_options(common_options());
  text +=
      "\n## Settings\n\n"
      "Defaults of one's own stand in `~/.config/regard/settings.json` (in `$XDG_CONFIG_HOME/regard` where that is set), or in the file of `--settings`:\n\n"
      "```json\n"
      "{\n"
      "  \"threads\": 2,\n"
      "  \"seed\": 7,\n"
      "  \"generate\": {\"temperature\": 0.7, \"stop\": [\"END\", \"###\"]},\n"
      "  \"mask draw\": {\"q-len\": 16, \"ascii\": true}\n"
      "}\n"
      "```\n\n"
      "An option at the top holds for every command that has it, here `seed` for `generate`, `chat` and `poem`. One under the name of a command holds for that command "
      "and goes before; a command of two words is written as one name, `\"mask draw\"`. Names are those of the options without dashes; a list is for an option that may "
      "be repeated. `--print-config` shows what came from where.\n";
  for (const Command& command : commands()) {
    text += fmt::format("\n## regard {}\n\n{}\n\n", command.name, command.description);
    for (const Example& example : command.examples) text += fmt::format("{}\n\n```sh\n{}\n```\n\n", example.says, example.line);
    if (!command.positionals.empty()) {
      text += "| value | meaning |\n| --- | --- |\n";
      for (const Positional& positional : command.positionals) {
        text += fmt::format("| `{}` | {}{} |\n", positional.name, cell(positional.help),
                            positional.presence == Presence::kRequired ? "" : " (optional)");
      }
      text += "\n";
    }
    if (!command.options.empty()) text += markdown_options(command.options);
  }
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace regard::cli
