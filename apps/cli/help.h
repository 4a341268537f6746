// Help for the terminal, the reference page and the completion scripts: three ways to print the option table.
#pragma once

#include <string>
#include <string_view>

#include "command.h"

namespace regard::cli {

/// `regard --help`: what the program is and the list of commands.
std::string program_help();
/// `regard mask --help` where there are only commands "mask ...".
std::string group_help(std::string_view group);
/// `regard COMMAND --help`: what it does, two examples, common options, the rest. At most 80 columns.
std::string command_help(const Command& command);
/// docs/cli.md.
std::string markdown_reference();
/// Errors: UsageError for a shell that is not known.
std::string completion_script(std::string_view shell);

/// `text` with lines of at most `width` columns, each behind `indent` spaces. Line ends in the text stay.
std::string wrap(std::string_view text, size_t indent, size_t width = 80);

}  // namespace regard::cli
