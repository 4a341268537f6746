#include "eval_task.h"

#include <fmt/format.h>

#include "regard/json.h"
#include "regard/train.h"

namespace regard::cli {

std::vector<Option> task_options() {
  return {
      {.name = "run", .type = Type::kText, .value = "DIR", .help = "Instead of a text: asks the model of a run of regard train questions of its task, or the classes of texts.", .section = Section::kCommon},
      {.name = "checkpoint", .type = Type::kChoice, .value = "NAME", .help = "Of --run: the newest checkpoint, or the one with the lowest loss; without it latest.",
       .choices = "latest|best"},
      {.name = "questions", .type = Type::kInteger, .value = "N",
       .help = "Of --run: how many questions, none of them one that was trained on; without it those that the run itself asks, 1000 of a task and every text of a run on classes.", .min = 1, .max = 1e8},
  };
}

bool wants_task(const Arguments& arguments) {
  const auto typed = [&](const char* name) { return arguments.source(name) == Source::kCommandLine; };
  if (!arguments.has("run")) {
    for (const char* name : {"checkpoint", "questions"})
      if (typed(name)) throw UsageError(fmt::format("--{} belongs to --run, which is not given", name));
    return false;
  }
  for (const char* name : {"model", "baseline", "state", "window", "stride", "max-perplexity", "train", "tokenizer", "order", "no-bos", "chunk"})
    if (typed(name)) throw UsageError(fmt::format("--{} is for texts and --run for tasks; give one of them", name));
  return true;
}

int run_task(Context& context) {
  const Arguments& arguments = context.arguments;
  TaskEvalOptions options;
  if (arguments.has("checkpoint") && arguments.text("checkpoint") == "best") options.checkpoint = TaskEvalOptions::Checkpoint::kBest;
  if (arguments.has("questions")) options.questions = arguments.integer("questions");
  if (arguments.source("file") == Source::kCommandLine) options.files = {arguments.text("file")};
  options.stop = &stop_token();
  const TaskScore score = evaluate_task(arguments.text("run"), options);
  const double solved = static_cast<double>(score.solved) / static_cast<double>(score.questions);
  const double accuracy = static_cast<double>(score.correct) / static_cast<double>(score.labels);
  if (arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1).member("task", score.task).member("checkpoint", score.checkpoint);
    json.member("questions", score.questions).member("solved", score.solved).member("exact_match", solved);
    json.member("labels", score.labels).member("accuracy", accuracy).member("nats_per_label", score.loss);
    context.out.write(json.end().finish() + "\n");
  } else {
    context.out.print("{}: {} of {} unseen questions solved ({:.2f} %), {:.2f} % of {} labels right, {:.4f} nats per label\n", score.task, score.solved,
                      score.questions, 100 * solved, 100 * accuracy, score.labels, score.loss);
  }
  return 0;
}

}  // namespace regard::cli
