// From a configuration to a run: reads the data, makes the model, starts the trainer.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "model/convert_config.h"
#include "nn/training/transformer.h"
#include "regard/tokenizer.h"
#include "regard/train.h"
#include "runtime/file.h"
#include "train/batches.h"
#include "train/class_data.h"
#include "train/model_config.h"
#include "train/resume_point.h"
#include "train/run_directory.h"
#include "train/start_file.h"
#include "train/task_batches.h"
#include "train/task_run.h"
#include "train/task_tokenizer.h"
#include "train/token_data.h"
#include "train/trainer.h"

namespace regard {
namespace {

using train_data::TokenData;
using train_data::WindowBatches;
using train_data::WindowOptions;

constexpr uint64_t kMaxTokenizer = uint64_t{256} << 20;

struct Words {
  std::optional<Tokenizer> tokenizer;
  std::string file;  // its bytes, as a checkpoint keeps them
  std::vector<std::pair<std::string, std::string>> files_beside;

  const Tokenizer* get() const { return tokenizer ? &*tokenizer : nullptr; }
};

// Of the file that a run begins from, or what data.tokenizer names.
Words load_words(const TrainConfig::Data& data, const model::TrainableFile* file) {
  Words words;
  if (file != nullptr && (file->opened().tokenizer || !data.tokenizer.empty())) {
    train_loop::FileTokenizer of_file = train_loop::tokenizer_of(*file, data.tokenizer);
    return {std::move(of_file.tokenizer), std::move(of_file.json), std::move(of_file.files_beside)};
  }
  if (data.tokenizer.empty()) return words;
  words.tokenizer = Tokenizer::from_file(data.tokenizer);
  const FileBytes bytes = read_file(data.tokenizer, kMaxTokenizer).value_or_throw();
  words.file.assign(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size());
  return words;
}

// The texts of a run, and what the vocabulary is.
struct Texts {
  TokenData training;
  std::optional<TokenData> validation;
  int64_t vocab_size = 0;
  uint64_t hash = 0;
};

Texts load_texts(const TrainConfig& config, const Words& words, const StopToken* stop) {
  const TrainConfig::Data& data = config.data;
  if (data.files.empty()) fail(Code::kInvalidArgument, "[train] there is nothing to train on; set data.files (--set data.files=text.txt, with data.tokenizer), or data.task");
  const TokenData all = train_data::load_tokens(data.files, data, words.get(), config.model.vocab_size, stop);
  Texts texts{all, std::nullopt, config.model.vocab_size, 0};
  if (!data.validation_files.empty()) {
    texts.validation = train_data::load_tokens(data.validation_files, data, words.get(), config.model.vocab_size, stop);
  } else if (data.validation_fraction > 0) {
    const int64_t cut = all.cut(data.validation_fraction);
    const int64_t least = config.run.sequence + (data.objective == TrainConfig::Data::Objective::kNextToken ? 1 : 0);
    if (cut < least) {
      fail(Code::kInvalidArgument, "[train] of the {} tokens of {} data.validation_fraction leaves {} to train on; expected at least {}, one sequence: give more text or a smaller run.sequence",
           all.size(), fmt::join(data.files, ", "), cut, least);
    }
    texts.training = all.part(0, cut);
    texts.validation = all.part(cut, all.size());
  }
  if (texts.vocab_size == 0 && words.tokenizer) texts.vocab_size = words.tokenizer->vocab_size();
  if (texts.vocab_size == 0) {
    texts.vocab_size = train_data::smallest_vocabulary(all);
    if (!data.validation_files.empty()) texts.vocab_size = std::max(texts.vocab_size, train_data::smallest_vocabulary(*texts.validation));
  }
  // Two halves whose hashes changed places would be another run.
  texts.hash = texts.training.hash() * 3 + (texts.validation ? texts.validation->hash() : 0);
  return texts;
}

// The id that stands for what is to be guessed: a token of the vocabulary, or one more. A model that began so has it as its last id.
int32_t mask_id(const TrainConfig::Data& data, const Words& words, const model::TrainableFile* file, Texts& texts) {
  const bool has_one_more = file != nullptr && words.tokenizer && texts.vocab_size == words.tokenizer->vocab_size() + 1;
  if (data.mask_token.empty()) return static_cast<int32_t>(has_one_more ? texts.vocab_size - 1 : texts.vocab_size++);
  const auto id = words.tokenizer ? words.tokenizer->find(data.mask_token) : std::nullopt;
  if (!id) fail(Code::kInvalidArgument, "[train] data.mask_token is '{}', which the tokenizer does not have", data.mask_token);
  return *id;
}

void check_objective(const TrainConfig& config) {
  const bool classes = config.data.objective == TrainConfig::Data::Objective::kClass;
  const bool masked = config.data.objective == TrainConfig::Data::Objective::kMaskedToken;
  const bool encoder = config.model.architecture == TrainConfig::Model::Architecture::kEncoder;
  if (config.model.architecture == TrainConfig::Model::Architecture::kEncoderDecoder) {
    fail(Code::kInvalidArgument, "[train] model.architecture is encoder_decoder, which reads pairs; data.files are single texts: choose a data.task");
  }
  // An encoder sees the token that it is to predict, so its loss would fall to nothing and mean nothing.
  if (encoder && !masked && !classes) {
    fail(Code::kInvalidArgument, "[train] an encoder sees the next token; set data.objective to masked_token or class, or model.architecture to decoder");
  }
}

// Everything that a run is made of. `shape_config` is the configuration with what the data decide filled in.
struct Setting {
  std::unique_ptr<train_data::BatchSource> training, validation;
  Words words;
  train_loop::SpecialIds special;
  int64_t vocab_size = 0;
  std::vector<std::string> class_names;  // of a run on classes
  uint64_t data_hash = 0;
  TrainConfig shape_config;
  std::string summary;
};

Setting text_setting(const TrainConfig& config, const model::TrainableFile* file, const StopToken* stop) {
  check_objective(config);
  Setting setting;
  setting.words = load_words(config.data, file);
  if (setting.words.tokenizer) setting.special = {setting.words.tokenizer->bos(), setting.words.tokenizer->eos()};
  setting.shape_config = config;
  Texts texts = load_texts(config, setting.words, stop);
  WindowOptions windows;
  windows.seq = config.run.sequence;
  windows.seed = config.run.seed;
  windows.documents = config.data.documents;
  windows.objective = config.data.objective;
  if (windows.objective == TrainConfig::Data::Objective::kMaskedToken) {
    const int64_t before = texts.vocab_size;
    const int32_t mask = mask_id(config.data, setting.words, file, texts);
    const bool behind = config.data.mask_token.empty();  // then it is no token that a text could have
    windows.corruption = {config.run.seed, config.data.mask_rate, mask, behind ? mask : static_cast<int32_t>(before)};
  }
  setting.training = std::make_unique<WindowBatches>(texts.training, windows);
  windows.order = WindowOptions::Order::kInOrder;
  if (texts.validation) setting.validation = std::make_unique<WindowBatches>(*texts.validation, windows);
  setting.vocab_size = texts.vocab_size;
  setting.data_hash = texts.hash;
  setting.summary = fmt::format("{} tokens to train on, {} to measure on", texts.training.size(), texts.validation ? texts.validation->size() : 0);
  return setting;
}

// Texts with a class each. A prefix and a suffix would make other texts of them than Model::classify() is given.
Setting class_setting(const TrainConfig& config, const StopToken* stop) {
  check_objective(config);
  const TrainConfig::Data& data = config.data;
  if (!config.run.init.empty()) fail(Code::kInvalidArgument, "[train] data.objective is class, whose weights are drawn from the seed; leave run.init out");
  if (!data.prefix.empty() || data.suffix != TrainConfig::Data().suffix) fail(Code::kInvalidArgument, "[train] data.objective is class, which reads each text as it is; leave data.prefix and data.suffix out");
  if (data.files.empty()) fail(Code::kInvalidArgument, "[train] there is nothing to train on; set data.files to JSON lines, with data.tokenizer");
  if (data.tokenizer.empty()) fail(Code::kInvalidArgument, "[train] the texts need a tokenizer; set data.tokenizer to a tokenizer.json");
  Setting setting;
  setting.words = load_words(data, nullptr);
  setting.special = {setting.words.tokenizer->bos(), setting.words.tokenizer->eos()};
  setting.shape_config = config;
  train_data::ClassData texts = train_data::load_class_data(config, *setting.words.tokenizer, stop);
  setting.vocab_size = config.model.vocab_size > 0 ? config.model.vocab_size : setting.words.tokenizer->vocab_size();
  setting.data_hash = texts.hash();
  setting.class_names = texts.names;
  setting.summary = fmt::format("{} texts of {} classes to train on, {} to measure on", texts.training.size(), texts.names.size(), texts.validation.size());
  using train_data::ClassBatches;
  const auto batches = [&](train_data::ClassTexts some, ClassBatches::Order order) {
    return std::make_unique<ClassBatches>(std::move(some), config.run.sequence, train_data::label_place(config), order, config.run.seed);
  };
  if (texts.validation.size() > 0) setting.validation = batches(std::move(texts.validation), ClassBatches::Order::kInOrder);
  setting.training = batches(std::move(texts.training), ClassBatches::Order::kShuffled);
  return setting;
}

Setting task_setting(const TrainConfig& config) {
  const train_loop::TaskRun run = train_loop::task_run(config);
  Setting setting;
  setting.training = std::make_unique<train_data::TaskBatches>(run.task, train_tasks::Split::kTraining);
  setting.validation = std::make_unique<train_data::TaskBatches>(run.task, train_tasks::Split::kValidation);
  train_data::Batch question;  // a task that has none says so here
  setting.training->fill(0, 1, question);
  setting.validation->fill(0, 1, question);
  setting.vocab_size = run.vocab_size;
  setting.shape_config = run.shape_config;
  setting.summary = fmt::format("the task {}, sequences of up to {} tokens", config.data.task, run.task->seq());
  if (const auto frame = run.task->frame()) setting.special = {frame->begin, frame->end, frame->padding};
  if (auto words = train_tasks::make_task_tokenizer(*run.task)) {
    setting.words.tokenizer = std::move(words->tokenizer);
    setting.words.file = std::move(words->json);
  }
  return setting;
}

// The file whose shape a run has: the one it begins from, or its own checkpoint when it goes on. Nothing: it has the shape of the section model.
std::optional<model::TrainableFile> file_of(const TrainOptions& options, TrainConfig& config) {
  const auto open = [](const std::string& path) { return std::optional<model::TrainableFile>(std::in_place, path); };
  if (options.start == TrainStart::kNew) {
    std::move(train_loop::RunDirectory::check_new(options.directory)).value_or_throw();
    return config.run.init.empty() ? std::nullopt : open(config.run.init);
  }
  const train_loop::ResumePoint point = train_loop::find_resume_point(options.directory).value_or_throw();
  const std::string first = train_loop::first_file_of(point.head.identity);
  if (!config.run.init.empty() && config.run.init != first) {
    fail(Code::kInvalidArgument, "[train] run.init is '{}', but the run in '{}' began with '{}'; leave it out, or begin a new run", config.run.init, options.directory,
         first);
  }
  config.run.init = first;
  return first.empty() ? std::nullopt : open(point.directory);
}

}  // namespace

TrainResult train(const TrainConfig& given, const TrainOptions& options) {
  TrainConfig config = given;
  const std::optional<model::TrainableFile> file = file_of(options, config);
  nn::TransformerConfig shape;
  if (file) {
    shape = file->shape(config.run.sequence);
    train_loop::adopt_shape(shape, file->path(), config);
  }
  const bool classes = config.data.task.empty() && config.data.objective == TrainConfig::Data::Objective::kClass;
  Setting setting = classes                    ? class_setting(config, options.stop)
                    : config.data.task.empty() ? text_setting(config, file ? &*file : nullptr, options.stop)
                                               : task_setting(config);
  if (file && setting.vocab_size != shape.vocab_size) {
    fail(Code::kInvalidArgument, "[train] the data need a vocabulary of {}, and the model in '{}' has {}", setting.vocab_size, file->path(), shape.vocab_size);
  }
  shape = file ? train_loop::with_free_fields(shape, setting.shape_config, file->path()) : train_loop::transformer_config(setting.shape_config, setting.vocab_size, std::ssize(setting.class_names));
  auto& beside = setting.words.files_beside;
  if (setting.words.tokenizer && std::none_of(beside.begin(), beside.end(), [](const auto& one) { return one.first == "tokenizer_config.json"; }))
    beside.emplace_back("tokenizer_config.json", model::tokenizer_config_json(*setting.words.tokenizer, shape.max_positions));
  const std::unique_ptr<nn::TrainingModel> model = nn::make_transformer(shape, config.run.seed);
  if (file && options.start == TrainStart::kNew) file->read(model->parameters(), options.stop);
  const bool of_family = file && file->family() != "regard" && file->family() != "t5";
  const train_loop::TrainerParts parts{.model = *model,
                                       .training = *setting.training,
                                       .validation = setting.validation.get(),
                                       .model_config = of_family ? file->config_json(config.run.save_as == TrainConfig::Run::SaveAs::kBf16 ? "bfloat16" : "float32")
                                                                 : train_loop::model_config_json(shape, setting.special, config.run.save_as, setting.class_names),
                                       .tokenizer = setting.words.file,
                                       .data_hash = setting.data_hash,
                                       .operations_per_token = nn::operations_per_token(shape, setting.shape_config.run.sequence),
                                       .files_beside = setting.words.files_beside};
  train_loop::Trainer trainer(config, parts, options, default_pool());
  if (options.on_event) {
    TrainEvent event;
    event.kind = TrainEvent::Kind::kStart;
    event.steps = config.run.steps;
    event.text = fmt::format("{}{} parameters, vocabulary {}; {}", file && options.start == TrainStart::kNew ? fmt::format("from {}, ", file->path()) : "",
                             model->parameters().count(), setting.vocab_size, setting.summary);
    options.on_event(event);
  }
  return trainer.run();
}

}  // namespace regard
