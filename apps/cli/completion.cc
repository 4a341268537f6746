// `regard completion SHELL` and the scripts it prints.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "help.h"

namespace regard::cli {
namespace {

std::string first_word(std::string_view name) { return std::string(name.substr(0, name.find(' '))); }
std::string second_word(std::string_view name) {
  const size_t space = name.find(' ');
  return space == std::string_view::npos ? "" : std::string(name.substr(space + 1));
}

std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    if (words.empty() || words.back() != first_word(command.name)) words.push_back(first_word(command.name));
  }
  return words;
}

std::vector<std::string> second_words(const std::string& first) {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    if (first_word(command.name) == first && !second_word(command.name).empty()) words.push_back(second_word(command.name));
  }
  return words;
}

std::string option_words(const Command& command) {
  std::vector<std::string> words;
  for (const Option& option : all_options(command)) words.push_back(fmt::format("--{}", option.name));
  return fmt::format("{}", fmt::join(words, " "));
}

bool takes_file(const Option& option) { return option.type == Type::kInputFile || option.type == Type::kOutputFile; }

// Single quotes for all three shells: a quote inside is left out, the texts do not need any.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text)
    if (c != '\'') out += c;
  return out + "'";
}

// Values of options that are words or files, as the arms of a shell "case" over the word before the cursor.
std::string bash_values() {
  std::set<std::string> seen;
  std::string choices, files;
  for (const Command& command : commands()) {
    for (const Option& option : all_options(command)) {
      if (!seen.insert(std::string(option.name)).second) continue;
      if (option.type == Type::kChoice) {
        choices += fmt::format("    --{}) COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n", option.name,
                               fmt::join(split(option.choices, '|'), " "));
      } else if (takes_file(option)) {
        files += fmt::format("{}--{}", files.empty() ? "" : "|", option.name);
        if (option.letter != 0) files += fmt::format("|-{}", option.letter);
      }
    }
  }
  if (!files.empty()) choices += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n", files);
  return choices;
}

std::string bash_script() {
  std::string script = fmt::format(
      "# bash completion for regard. Load it with: source <(regard completion bash)\n"
      "_regard() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$current\")); return\n"
      "  fi\n",
      fmt::join(first_words(), " "));
  for (const std::string& first : first_words()) {
    const std::vector<std::string> seconds = second_words(first);
    if (seconds.empty()) continue;
    script += fmt::format(
        "  if [ \"$COMP_CWORD\" -eq 2 ] && [ \"${{COMP_WORDS[1]}}\" = {} ]; then\n"
        "    COMPREPLY=($(compgen -W '{} --help' -- \"$current\")); return\n"
        "  fi\n",
        first, fmt::join(seconds, " "));
  }
  script += "  case $before in\n" + bash_values() + "  esac\n  local options=\n  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n";
  for (const Command& command : commands()) {
    const std::string pattern = second_word(command.name).empty() ? fmt::format("{}\\ *", first_word(command.name))
                                                                  : fmt::format("'{}'", command.name);
    script += fmt::format("    {}) options='{}' ;;\n", pattern, option_words(command));
  }
  script +=
      "  esac\n"
      "  case $current in\n"
      "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _regard regard\n";
  return script;
}

std::string zsh_option(const Option& option) {
  std::string help;
  for (char c : option.help) {
    if (c == '[' || c == ']' || c == ':' || c == '\'') continue;
    help += c;
  }
  std::string action;
  if (option.type == Type::kChoice) action = fmt::format(":{}:({})", option.value, fmt::join(split(option.choices, '|'), " "));
  else if (takes_file(option)) action = fmt::format(":{}:_files", option.value);
  else if (option.type != Type::kFlag) action = fmt::format(":{}: ", option.value);
  return fmt::format("'--{}[{}]{}'", option.name, help, action);
}

std::string zsh_script() {
  std::string script =
      "#compdef regard\n"
      "# zsh completion for regard. Put it into a directory of $fpath under the name _regard.\n"
      "_regard() {\n"
      "  local -a firsts seconds\n"
      "  if (( CURRENT == 2 )); then\n    firsts=(";
  for (const std::string& first : first_words()) script += fmt::format("{} ", first);
  script += ")\n    compadd -a firsts; return\n  fi\n";
  for (const std::string& first : first_words()) {
    const std::vector<std::string> seconds = second_words(first);
    if (seconds.empty()) continue;
    script += fmt::format("  if (( CURRENT == 3 )) && [[ $words[2] == {} ]]; then\n    seconds=({})\n    compadd -a seconds; return\n  fi\n",
                          first, fmt::join(seconds, " "));
  }
  script += "  case \"$words[2] $words[3]\" in\n";
  for (const Command& command : commands()) {
    const bool two = !second_word(command.name).empty();
    script += fmt::format("    {}) _arguments", two ? fmt::format("'{}'", command.name) : fmt::format("{}\\ *", command.name));
    for (const Option& option : all_options(command)) script += " \\\n      " + zsh_option(option);
    script += " \\\n      '*:file:_files' ;;\n";
  }
  return script + "  esac\n}\n_regard \"$@\"\n";
}

std::string fish_script() {
  std::string script = "# fish completion for regard. Load it with: regard completion fish | source\ncomplete -c regard -f\n";
  std::set<std::string> seen;
  for (const Command& command : commands()) {
    const std::string first = first_word(command.name), second = second_word(command.name);
    if (seen.insert(first).second) {
      script += fmt::format("complete -c regard -n __fish_use_subcommand -a {} -d {}\n", first,
                            quoted(second.empty() ? command.summary : std::string_view("")));
    }
    std::string condition = fmt::format("__fish_seen_subcommand_from {}", first);
    if (!second.empty()) {
      script += fmt::format("complete -c regard -n '{}; and not __fish_seen_subcommand_from {}' -a {} -d {}\n", condition,
                            fmt::join(second_words(first), " "), second, quoted(command.summary));
      condition += fmt::format("; and __fish_seen_subcommand_from {}", second);
    }
    for (const Option& option : all_options(command)) {
      script += fmt::format("complete -c regard -n '{}' -l {}", condition, option.name);
      if (option.letter != 0) script += fmt::format(" -s {}", option.letter);
      if (option.type == Type::kChoice) script += fmt::format(" -x -a '{}'", fmt::join(split(option.choices, '|'), " "));
      else if (takes_file(option)) script += " -r -F";
      else if (option.type != Type::kFlag) script += " -x";
      script += fmt::format(" -d {}\n", quoted(option.help));
    }
  }
  return script;
}

int run_completion(Context& context) {
  context.out.write(completion_script(context.arguments.positional("SHELL")));
  return 0;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  const std::string meant = nearest(shell, {"bash", "zsh", "fish"});
  throw UsageError(fmt::format("SHELL is '{}'; {}give bash, zsh or fish", shell, meant.empty() ? "" : fmt::format("did you mean {}? ", meant)));
}

Command completion_command() {
  return {
      .name = "completion",
      .summary = "print a completion script for a shell",
      .description = "Prints a script that teaches a shell the commands and options of this program.",
      .examples = {{"source <(regard completion bash)", "Completes in this bash."},
                   {"regard completion fish > ~/.config/fish/completions/regard.fish", "Completes in every fish from now on."}},
      .positionals = {{"SHELL", "bash, zsh or fish"}},
      .options = {},
      .run = run_completion,
  };
}

}  // namespace regard::cli
