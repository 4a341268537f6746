#include "train/task_run.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace regard::train_loop {

TaskRun task_run(const TrainConfig& config) {
  using Architecture = TrainConfig::Model::Architecture;
  if (!config.data.files.empty()) fail(Code::kInvalidArgument, "[train] data.task and data.files are both set; give one of them");
  TaskRun run;
  run.task = train_tasks::make_task(config.data.task, {.seed = config.run.seed, .length = config.data.task_length});
  const Architecture needed = run.task->source_seq() > 0 ? Architecture::kEncoderDecoder
                              : run.task->sight() == train_tasks::Sight::kBoth ? Architecture::kEncoder
                                                                               : Architecture::kDecoder;
  if (config.model.architecture != needed) {
    constexpr std::string_view kNames[] = {"decoder", "encoder", "encoder_decoder"};
    fail(Code::kInvalidArgument, "[train] the task {} is one for model.architecture {}", config.data.task, kNames[static_cast<size_t>(needed)]);
  }
  run.shape_config = config;
  run.shape_config.run.sequence = std::max(run.task->seq(), run.task->source_seq());
  run.vocab_size = std::max<int64_t>(run.task->vocab_size(), config.model.vocab_size);
  return run;
}

}  // namespace regard::train_loop
