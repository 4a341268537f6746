// `regard train`: trains a model as a configuration says, or goes on with a run that was stopped.
#include "regard/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "command.h"
#include "input.h"
#include "regard/error.h"
#include "regard/json.h"

namespace regard::cli {
namespace {

TrainConfig read_config(const Arguments& arguments) {
  TrainConfig config;
  if (arguments.has_positional("config")) {
    const std::string& path = arguments.positional("config");
    config = parse_train_config(path == "-" ? read_text(path) : read_regular(path), path);
  }
  const auto set_fields = [&] {
    for (const std::string& assignment : arguments.list("set")) set_train_field(config, assignment);
    if (arguments.has("init")) set_train_field(config, "run.init=" + arguments.text("init"));
  };
  set_fields();
  const bool says_nothing = !arguments.has_positional("config") && config.data.files.empty() && config.data.task.empty();
  if (!says_nothing || !arguments.flag("resume") || !arguments.has("out")) return config;
  // The run itself says what it is.
  const std::string path = arguments.text("out") + "/train.json";
  std::error_code ignored;
  if (std::filesystem::exists(arguments.text("out") + "/latest", ignored) && !std::filesystem::exists(path, ignored)) {
    throw Error(Code::kNotFound, fmt::format("[train] there is no '{}' to say what the run is; give the configuration that it began with", path));
  }
  if (!std::filesystem::exists(path, ignored)) throw Error(Code::kNotFound, fmt::format("[train] '{}' holds no run to go on with", arguments.text("out")));
  config = parse_train_config(read_text(path), path);
  set_fields();
  return config;
}

// Line ends in a value would end the line of the listing.
std::string on_one_line(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') text += "\\n";
    else text += c;
  }
  return text;
}

// The fields behind the options, each with its range and what it is for.
void print_fields(Context& context) {
  const TrainConfig config = read_config(context.arguments);
  for (const TrainConfigField& field : train_config_fields(config)) {
    context.out.print("{} = {}  # {}; {}; {}\n", field.name, on_one_line(field.value), field.is_default ? "default" : "set", field.range, field.help);
  }
}

std::string time_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60) : fmt::format("{}:{:02}", s / 60, s % 60);
}

// Progress on standard error; what is final there are the evaluations and what was left out.
void report(Messages& messages, const TrainEvent& event) {
  switch (event.kind) {
    case TrainEvent::Kind::kNote:
    case TrainEvent::Kind::kStart: messages.note(event.text); break;
    case TrainEvent::Kind::kStep:
      messages.progress(fmt::format("step {}, loss {:.4f}, lr {:.2e}, {:.0f} tokens/s{}, {} left", event.step, event.loss, event.learning_rate,
                                    event.tokens_per_second, event.peak_share > 0 ? fmt::format(" ({:.0f} % of peak)", 100 * event.peak_share) : "",
                                    time_text(event.seconds_left)),
                        static_cast<uint64_t>(event.step), static_cast<uint64_t>(event.steps));
      break;
    case TrainEvent::Kind::kSkipped: messages.note(fmt::format("step {}: loss {:.4f}, left out", event.step, event.loss)); break;
    case TrainEvent::Kind::kEvaluation:
      messages.note(fmt::format("step {}: validation loss {:.4f}, accuracy {:.1f} %{}{}", event.step, event.loss, 100 * event.accuracy,
                                event.questions > 0 ? fmt::format(", {} of {} unseen questions solved", event.solved, event.questions) : "",
                                event.best ? ", the best so far" : ""));
      break;
    case TrainEvent::Kind::kCheckpoint: break;
  }
}

std::string_view end_name(TrainEnd end) {
  return end == TrainEnd::kComplete ? "complete" : end == TrainEnd::kStopped ? "stopped" : "no improvement";
}

void write_number(JsonWriter& json, std::string_view key, double value) {
  json.key(key);
  if (std::isfinite(value)) json.value(value);
  else json.null();
}

void print_json(Output& out, const TrainResult& result) {
  JsonWriter json;
  json.begin_object().member("schema", 1).member("end", end_name(result.end)).member("step", result.step).member("tokens", result.tokens);
  write_number(json, "loss", result.loss);
  write_number(json, "validation_loss", result.validation_loss);
  write_number(json, "best_loss", result.best_loss);
  json.member("best_step", result.best_step).member("checkpoint", result.checkpoint);
  out.write(json.end().finish() + "\n");
}

void print_text(Output& out, const TrainResult& result, const std::string& directory) {
  constexpr int kPlotRows = 16;
  if (is_terminal(STDOUT_FILENO)) out.write(draw_loss_curve(directory + "/log.jsonl", terminal_columns(), kPlotRows));
  out.print("step {}", result.step);
  if (std::isfinite(result.loss)) out.print(", loss {:.4f}", result.loss);
  if (std::isfinite(result.validation_loss)) out.print(", validation loss {:.4f}", result.validation_loss);
  if (std::isfinite(result.best_loss)) out.print(", best {:.4f} at step {}", result.best_loss, result.best_step);
  out.print(" ({}); {}\n", end_name(result.end), result.checkpoint);
}

int run_train(Context& context) {
  const Arguments& arguments = context.arguments;
  const TrainConfig config = read_config(arguments);
  if (arguments.flag("show-config")) {
    context.out.write(train_config_json(config));
    return 0;
  }
  if (!arguments.has("out")) throw UsageError("--out is missing; give the directory of the run");
  TrainOptions options;
  options.directory = arguments.text("out");
  options.start = arguments.flag("resume") ? TrainStart::kResume : TrainStart::kNew;
  options.stop = &stop_token();
  options.on_event = [&context](const TrainEvent& event) { report(context.messages, event); };
  const TrainResult result = train(config, options);
  context.messages.end_progress();
  if (result.end == TrainEnd::kStopped) context.messages.note(fmt::format("stopped; 'regard train --out {} --resume' goes on", options.directory));
  if (arguments.flag("json")) print_json(context.out, result);
  else print_text(context.out, result, options.directory);
  return 0;
}

}  // namespace

Command train_command() {
  return {
      .name = "train",
      .summary = "train a model",
      .description = "Trains a model from nothing, or with --init from the weights of another, as a configuration in JSON says, and keeps the run in a directory: checkpoints that other programs "
                     "load, a log, curves of the loss. --print-config lists every field with its range and default. Ctrl-C saves and ends; --resume goes "
                     "on, and ends with the same bits as if nothing had been.",
      .examples = {{"regard train poet.json --out poet", "A new run in the directory poet."},
                   {"regard train --init model.gguf --set data.files=text.txt --out tuned", "Goes on with a published model on texts of one's own."},
                   {"regard train --out poet --resume", "Goes on where it was stopped, by the configuration that the run keeps."},
                   {"regard train --show-config > config.json", "All fields and their defaults, to begin from."}},
      .positionals = {{"config", "The configuration, a JSON file; without it, defaults and --set.", Presence::kOptional}},
      .options =
          {
              {.name = "out", .letter = 'o', .type = Type::kText, .value = "DIR", .help = "The directory of the run; made when it is not there.",
               .section = Section::kCommon},
              {.name = "set", .letter = 's', .type = Type::kText, .value = "FIELD=VALUE",
               .help = "Sets a field over what the file says: run.steps=100.", .repeat = Repeat::kMany, .section = Section::kCommon},
              {.name = "init", .type = Type::kText, .value = "MODEL",
               .help = "Begins with the weights, the shape and the tokenizer of a GGUF file, a Hugging Face directory or a checkpoint.", .section = Section::kCommon},
              {.name = "resume", .help = "Goes on from the newest checkpoint of the run; without a configuration and data, as its train.json says, and --set over it.", .section = Section::kCommon},
              {.name = "show-config", .help = "Prints the whole configuration as JSON, a file to begin from, and ends."},
              json_option(),
          },
      .run = run_train,
      .print_config = print_fields,
  };
}

}  // namespace regard::cli
