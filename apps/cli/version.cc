// `regard version` and `regard help`.
#include <fmt/format.h>

#include "help.h"
#include "regard/json.h"
#include "regard/version.h"

namespace regard::cli {
namespace {

int run_version(Context& context) {
  if (context.arguments.flag("json")) {
    context.out.write(JsonWriter().begin_object().member("schema", 1).member("version", version()).end().finish() + "\n");
  } else {
    context.out.print("regard {}\n", version());
  }
  return 0;
}

int run_help(Context& context) {
  if (context.arguments.flag("markdown")) {
    context.out.write(markdown_reference());
    return 0;
  }
  const std::string& topic = context.arguments.positional("COMMAND");
  if (topic.empty()) {
    context.out.write(program_help());
    return 0;
  }
  const std::string& second = context.arguments.positional("WORD");
  const std::string name = second.empty() ? topic : topic + " " + second;
  std::vector<std::string> names;
  bool group = false;
  for (const Command& command : commands()) {
    if (command.name == name) {
      context.out.write(command_help(command));
      return 0;
    }
    names.emplace_back(command.name);
    group = group || command.name.starts_with(name + " ");
  }
  if (group) {
    context.out.write(group_help(name));
    return 0;
  }
  const std::string meant = nearest(name, names);
  throw UsageError(fmt::format("there is no command '{}'{}", name, meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)));
}

}  // namespace

Command version_command() {
  return {
      .name = "version",
      .summary = "print the version",
      .description = "Prints the version of the program and of the library it is made of.",
      .examples = {{"regard version", "Prints a line such as 'regard 0.1.0'."}, {"regard version --json", "The same for a script."}},
      .positionals = {},
      .options = {json_option()},
      .run = run_version,
  };
}

Command help_command() {
  return {
      .name = "help",
      .summary = "tell what a command does",
      .description = "Shows the list of commands, or what one of them does and takes.",
      .examples = {{"regard help mask draw", "The same as 'regard mask draw --help'."},
                   {"regard help --markdown > docs/cli.md", "Makes the reference page anew."}},
      .positionals = {{"COMMAND", "the command to tell about", Presence::kOptional},
                      {"WORD", "its second word, if it has one", Presence::kOptional}},
      .options = {{.name = "markdown", .help = "Prints the whole reference as Markdown."}},
      .run = run_help,
  };
}

}  // namespace regard::cli
