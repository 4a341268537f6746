// A checkpoint of a task asked again, from the files of its run alone: train.json says what the model and the questions are. One that tells
// classes apart is asked the texts that its run measured on, or others.
#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/half.h"
#include "format/tensor_source.h"
#include "nn/training/transformer.h"
#include "regard/model.h"
#include "regard/tokenizer.h"
#include "regard/train.h"
#include "runtime/file.h"
#include "train/class_data.h"
#include "train/model_config.h"
#include "train/task_batches.h"
#include "train/task_run.h"

namespace regard {
namespace {

constexpr uint64_t kMaxConfig = uint64_t{1} << 20;
constexpr int64_t kMaxQuestions = 100'000'000;

TrainConfig read_run_config(const std::string& directory) {
  const std::string path = directory + "/train.json";
  auto bytes = read_file(path, kMaxConfig);
  if (!bytes && bytes.failure().code == Code::kNotFound) {
    fail(Code::kNotFound, "[evaluate_task] '{}' is not there; give the directory of a run, the --out of regard train", path);
  }
  const FileBytes file = std::move(bytes).value_or_throw();
  return parse_train_config({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

// Every parameter from the tensor of its name, f32 or bf16 as a run saves them.
void load_parameters(const std::string& checkpoint, nn::ParameterStore<float>& parameters) {
  const std::string path = checkpoint + "/model.safetensors";
  TensorSource source = TensorSource::open(path).value_or_throw();
  std::vector<uint16_t> rounded;
  for (const nn::Parameter& p : parameters.parameters()) {
    const TensorInfo* tensor = source.take(p.name).value_or_throw();
    const bool bf16 = tensor->type == DType::kBF16;
    if (tensor->shape != p.shape || (!bf16 && tensor->type != DType::kF32)) {
      fail(Code::kCorruptData, "[evaluate_task] {} in '{}' is {} [{}]; the configuration of the run expects f32 or bf16 [{}]", p.name, path, info(tensor->type).name,
           fmt::join(tensor->shape, ", "), fmt::join(p.shape, ", "));
    }
    const auto size = static_cast<size_t>(p.size);
    float* values = parameters.values().data() + p.offset;
    if (!bf16) {
      source.read(*tensor, {reinterpret_cast<uint8_t*>(values), 4 * size}).value_or_throw();
      continue;
    }
    rounded.resize(size);
    source.read(*tensor, {reinterpret_cast<uint8_t*>(rounded.data()), 2 * size}).value_or_throw();
    std::transform(rounded.begin(), rounded.end(), values, [](uint16_t bits) { return bf16_to_float(bits); });
  }
}

// What is asked of which model.
struct Questions {
  nn::TransformerConfig shape;
  std::unique_ptr<train_data::BatchSource> batches;
};

Questions of_task(const TrainConfig& config) {
  const train_loop::TaskRun run = train_loop::task_run(config);
  return {train_loop::transformer_config(run.shape_config, run.vocab_size), std::make_unique<train_data::TaskBatches>(run.task, train_tasks::Split::kValidation)};
}

// The checkpoint has the names of the classes and the tokenizer, so that files of the run may be elsewhere when others are asked about.
Questions of_classes(const TrainConfig& config, const std::string& checkpoint, const TaskEvalOptions& options) {
  const ModelInfo info = Model::describe(checkpoint);
  const Tokenizer tokenizer = Tokenizer::from_file(checkpoint + "/tokenizer.json");
  const auto& files = options.files.empty() ? config.data.validation_files : options.files;
  train_data::ClassTexts texts = files.empty() ? train_data::load_class_data(config, tokenizer, options.stop).validation
                                               : train_data::load_class_texts(files, config, tokenizer, info.class_names, options.stop);
  if (texts.size() == 0) fail(Code::kInvalidArgument, "[evaluate_task] the run measured on nothing (data.validation_fraction is 0); name files to ask about");
  return {train_loop::transformer_config(config, info.vocab_size, info.num_classes),
          std::make_unique<train_data::ClassBatches>(std::move(texts), config.run.sequence, train_data::label_place(config), train_data::ClassBatches::Order::kInOrder,
                                                     config.run.seed)};
}

}  // namespace

TaskScore evaluate_task(const std::string& directory, const TaskEvalOptions& options) {
  if (options.questions) require(*options.questions >= 1 && *options.questions <= kMaxQuestions, "[evaluate_task] {} questions; expected 1 to {}", *options.questions, kMaxQuestions);
  const TrainConfig config = read_run_config(directory);
  const bool classes = config.data.task.empty() && config.data.objective == TrainConfig::Data::Objective::kClass;
  if (!options.files.empty() && !classes) fail(Code::kInvalidArgument, "[evaluate_task] files to ask about are for a run on classes, which that in '{}' is not", directory);
  if (config.data.task.empty() && !classes) {
    fail(Code::kInvalidArgument, "[evaluate_task] the run in '{}' trains on texts, not on a task; evaluate its checkpoint on a text", directory);
  }
  TaskScore score;
  score.task = classes ? "class" : config.data.task;
  score.checkpoint = directory + (options.checkpoint == TaskEvalOptions::Checkpoint::kBest ? "/best" : "/latest");
  const Questions asked = classes ? of_classes(config, score.checkpoint, options) : of_task(config);
  const auto model = nn::make_transformer(asked.shape, config.run.seed);
  load_parameters(score.checkpoint, model->parameters());

  const int64_t pass = asked.batches->pass();
  const int64_t questions = !options.questions ? pass : classes ? std::min(*options.questions, pass) : *options.questions;
  train_data::Batch batch;
  for (int64_t first = 0; first < questions; first += config.run.batch) {
    const int64_t count = std::min(config.run.batch, questions - first);
    asked.batches->fill(first, count, batch);
    const nn::LossSum part = model->evaluate(default_pool(), batch.view(0, count), options.stop);
    score.loss += part.nats;
    score.labels += part.counted;
    score.correct += part.correct;
    score.questions += part.sequences;
    score.solved += part.exact;
  }
  if (score.labels > 0) score.loss /= static_cast<double>(score.labels);
  return score;
}

}  // namespace regard
