// One command of the program: its words, its options, and the function that does the work. Each has a file of its own;
// commands.cc lists them all.
#pragma once

#include <string_view>
#include <vector>

#include "arguments.h"
#include "option.h"
#include "terminal.h"

namespace regard::cli {

struct Example {
  std::string_view line;  ///< what to type
  std::string_view says;  ///< what it does
};

struct Command;

/// What a command is given to run with.
struct Context {
  const Command& command;
  const Arguments& arguments;
  Output& out;       ///< standard output: data only
  Messages& messages;  ///< standard error: everything else
};

struct Command {
  std::string_view name;     ///< one word, or two: "mask draw"
  std::string_view summary;  ///< a few words for the list of commands
  std::string_view description;
  std::vector<Example> examples;  ///< at least two
  std::vector<Positional> positionals;
  std::vector<Option> options;
  int (*run)(Context& context) = nullptr;  ///< returns the exit status
  void (*print_config)(Context& context) = nullptr;  ///< what --print-config shows behind the options
};

/// All commands in the order of the help.
const std::vector<Command>& commands();
/// Options that every command has.
const std::vector<Option>& common_options();
/// The command's own options and the common ones.
std::vector<Option> all_options(const Command& command);

Command generate_command();
Command poem_command();
Command chat_command();
Command tokens_encode_command();
Command tokens_decode_command();
Command tokens_train_command();
Command eval_command();
Command train_command();
Command info_command();
Command convert_command();
Command logits_command();
Command classify_command();
Command attend_command();
Command mask_draw_command();
Command mask_count_command();
Command mask_row_command();
Command mask_column_command();
Command mask_prove_command();
Command mask_why_command();
Command mask_check_command();
Command doctor_command();
Command completion_command();
Command version_command();
Command help_command();

/// Helps to write tables of options that several commands share.
std::vector<Option> join(std::initializer_list<std::vector<Option>> parts);

/// An option that every command which reports has.
Option json_option();

}  // namespace regard::cli
