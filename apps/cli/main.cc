// The regard command: finds the command, reads its options, runs it, and turns what happened into a message and an exit
// status. Start reading at run(); command.h says what a command is.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "command.h"
#include "help.h"
#include "input.h"
#include "regard/error.h"
#include "regard/runtime.h"
#include "regard/version.h"

namespace regard::cli {
namespace {

constexpr int kUsage = exit_status(Code::kInvalidArgument);
constexpr int kPipeClosed = 141;  // what a shell shows for a program that SIGPIPE ended

// Messages of the library begin with the function in brackets, which helps a programmer and not a reader of a terminal.
std::string_view without_function(std::string_view message) {
  if (!message.starts_with('[')) return message;
  const size_t end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

const Command* find_command(std::string_view name) {
  for (const Command& command : commands())
    if (command.name == name) return &command;
  return nullptr;
}

bool is_group(const std::string& word) {
  for (const Command& command : commands())
    if (command.name.starts_with(word + " ")) return true;
  return false;
}

// Words that could stand at the place of a mistyped one.
std::vector<std::string> names_below(const std::string& group) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    std::string_view name = command.name;
    if (!group.empty() && !name.starts_with(group + " ")) continue;
    if (!group.empty()) name.remove_prefix(group.size() + 1);
    names.emplace_back(name.substr(0, name.find(' ')));
  }
  return names;
}

[[noreturn]] void unknown_command(const std::string& group, const std::string& word) {
  const std::string prefix = group.empty() ? "" : group + " ";
  if (word.starts_with('-')) throw UsageError(fmt::format("'{}' comes before a command; options stand behind it", word));
  const std::string meant = nearest(word, names_below(group));
  throw UsageError(fmt::format("unknown command '{}{}'{}", prefix, word, meant.empty() ? "" : fmt::format("; did you mean '{}{}'?", prefix, meant)));
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

void print_config(Context& context) {
  for (const Option& option : all_options(context.command)) {
    const Arguments& arguments = context.arguments;
    const Source source = arguments.source(option.name);
    const char* from = source == Source::kCommandLine ? "command line" : source == Source::kEnvironment ? "environment" : source == Source::kSettings ? "settings" : source == Source::kDefault ? "default" : "not set";
    context.out.print("{} = {}  # {}\n", option.name, fmt::join(arguments.list(option.name), ", "), from);
  }
}

// Options of every command. The instruction set goes through the environment, where the library looks for it once.
void apply_common(const Arguments& arguments, Messages& messages) {
  const std::string& color = arguments.text("color");
  messages.set_style({.quiet = arguments.flag("quiet"),
                      .progress = !arguments.flag("no-progress"),
                      .color = color == "always" ? Color::kAlways : color == "never" ? Color::kNever : Color::kAuto});
  if (arguments.has("isa")) setenv("REGARD_ISA", arguments.text("isa").c_str(), 1);
  if (arguments.has("threads")) set_num_threads(static_cast<int>(arguments.integer("threads")));
  set_log_callback(
      [](LogLevel level, std::string_view message, void* context) {
        if (level >= LogLevel::kWarning) static_cast<Messages*>(context)->note(fmt::format("warning: {}", without_function(message)));
      },
      &messages);
}

int run_command(const Command& command, const std::vector<std::string>& words, Output& out, Messages& messages) {
  messages.set_prefix(fmt::format("regard {}", command.name));
  const Arguments arguments = read_arguments(command, words);
  Context context{command, arguments, out, messages};
  if (arguments.flag("help")) {
    out.write(command_help(command));
    return 0;
  }
  if (arguments.flag("print-config")) {
    print_config(context);
    if (command.print_config != nullptr) command.print_config(context);
    return 0;
  }
  apply_common(arguments, messages);
  check_files(arguments);
  return command.run(context);
}

int run(const std::vector<std::string>& words, Output& out, Messages& messages) {
  if (words.empty()) {
    messages.error("a command is missing; 'regard --help' lists them");
    return kUsage;
  }
  if (is_help(words[0])) {
    out.write(program_help());
    return 0;
  }
  if (words[0] == "--version") {
    out.print("regard {}\n", version());
    return 0;
  }
  if (const Command* command = find_command(words[0])) {
    return run_command(*command, {words.begin() + 1, words.end()}, out, messages);
  }
  if (!is_group(words[0])) unknown_command("", words[0]);
  if (words.size() == 1) throw UsageError(fmt::format("a command is missing; 'regard {} --help' lists them", words[0]));
  if (is_help(words[1])) {
    out.write(group_help(words[0]));
    return 0;
  }
  const Command* command = find_command(words[0] + " " + words[1]);
  if (command == nullptr) unknown_command(words[0], words[1]);
  return run_command(*command, {words.begin() + 2, words.end()}, out, messages);
}

// A signal that came while the command finished its last step still decides the status.
int status_of_signal(int status) {
  const int signal = signal_received();
  return signal != 0 ? 128 + signal : status;
}

int guarded(const std::vector<std::string>& words, Output& out, Messages& messages) {
  try {
    const int status = run(words, out, messages);
    messages.end_progress();
    out.flush();
    return status_of_signal(status);
  } catch (const PipeClosed&) {
    return kPipeClosed;
  } catch (const UsageError& error) {
    messages.error(error.what());
    return kUsage;
  } catch (const Error& error) {
    out.flush();  // what was printed before the failure is still data
    if (error.code() == Code::kCancelled && signal_received() != 0) {
      messages.end_progress();
      return 128 + signal_received();
    }
    messages.error(without_function(error.what()));
    if (error.code() == Code::kInternal) messages.error("this is a fault of the program; please report it with the output of 'regard doctor'");
    return exit_status(error.code());
  }
}

}  // namespace
}  // namespace regard::cli

int main(int argc, char** argv) {
  using namespace regard::cli;
  // The locale stays "C": a decimal comma in the environment must not change what a number looks like.
  Output out;
  Messages messages;
  try {
    return guarded({argv + (argc > 0 ? 1 : 0), argv + argc}, out, messages);
  } catch (const PipeClosed&) {
    return kPipeClosed;
  } catch (const regard::Error& error) {  // from the last flush
    messages.error(error.what());
    return regard::exit_status(error.code());
  } catch (const std::bad_alloc&) {
    messages.error("no memory left");
    return regard::exit_status(regard::Code::kResourceExhausted);
  } catch (const std::exception& error) {
    messages.error(fmt::format("internal error: {}; please report it with the output of 'regard doctor'", error.what()));
    return regard::exit_status(regard::Code::kInternal);
  }
}
