// Training: a configuration, data, and a directory in which the run lives. Start at train(); TrainConfig says what can be set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/stop_token.h"

namespace regard {

/// Everything that decides the result of a run. Ranges and one line of help for each field: train_config_fields().
struct TrainConfig {
  struct Model {
    /// kGpt2 and kLlama are the shapes of those families, whose checkpoints other programs load; kRegard is free in all fields.
    enum class Type { kGpt2, kLlama, kRegard };
    enum class Architecture { kDecoder, kEncoder, kEncoderDecoder };
    enum class Position { kOfType, kLearned, kSinusoidal, kRope, kAlibi, kT5, kXl, kNone };
    enum class Norm { kOfType, kLayerNorm, kRmsNorm };
    enum class Placement { kPre, kPost, kSandwich };
    enum class QueryKeyNorm { kOff, kOn };
    enum class Activation { kOfType, kGeluTanh, kGeluErf, kSilu, kRelu };
    enum class Switch { kOfType, kOn, kOff };
    enum class Recompute { kNone, kCheap, kFull };

    Type type = Type::kGpt2;
    Architecture architecture = Architecture::kDecoder;
    int64_t vocab_size = 0;  ///< 0: what the tokenizer or the task has
    int64_t hidden_size = 128;
    int64_t layers = 4;
    int64_t encoder_layers = 2;  ///< of kEncoderDecoder
    int64_t heads = 4;
    int64_t kv_heads = 0;           ///< 0: as many as heads
    int64_t head_size = 0;          ///< 0: hidden_size / heads
    int64_t intermediate_size = -1;  ///< of the feed-forward; 0: blocks of attention alone; -1: 4 x hidden, gated 8/3 x hidden
    int64_t max_positions = 0;      ///< 0: run.sequence
    std::string mask;               ///< of the decoder, in the text form of masks; empty: causal (an encoder: full)
    Position position = Position::kOfType;
    Norm norm = Norm::kOfType;
    Placement placement = Placement::kPre;  ///< kSandwich: before and behind the parts of a block, as in Gemma
    QueryKeyNorm query_key_norm = QueryKeyNorm::kOff;  ///< of queries and keys, per head, as in Qwen 3
    Activation activation = Activation::kOfType;
    Switch gated = Switch::kOfType;
    Switch biases = Switch::kOfType;
    Switch tied = Switch::kOfType;
    double norm_epsilon = 1e-5;
    double rope_theta = 10000;
    double embedding_scale = 1;
    double attention_softcap = 0, final_softcap = 0;  ///< c tanh(x / c) of scores and of logits, as in Gemma 2; 0: none
    double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;
    double label_smoothing = 0;
    double z_loss = 0;
    double initializer_std = 0.02;
    Recompute recompute = Recompute::kCheap;
  };

  struct Data {
    enum class Format { kAuto, kText, kJsonLines, kTokens };
    enum class TokenType { kUint16, kInt32 };
    enum class Unit { kFile, kLine };
    enum class Documents { kNone, kMask, kMaskAndRestart };
    enum class Objective { kNextToken, kMaskedToken, kClass };

    std::vector<std::string> files;
    std::vector<std::string> validation_files;
    std::string task;  ///< a synthetic task in the place of files
    int64_t task_length = 0;  ///< what it counts differs from task to task; 0: the usual
    Format format = Format::kAuto;
    TokenType token_type = TokenType::kUint16;  ///< of token files without a head of their own
    std::string field = "text";                 ///< of JSON lines
    std::string tokenizer;                      ///< a tokenizer.json
    Unit unit = Unit::kFile;                    ///< what a document of a text is
    std::string prefix;                         ///< before and after each line or record; may name special tokens
    std::string suffix = "\n";
    Documents documents = Documents::kNone;
    double validation_fraction = 0.1;
    Objective objective = Objective::kNextToken;
    double mask_rate = 0.15;
    std::string mask_token;
    std::string label = "label";  ///< of JSON lines: the class of the text (kClass)
  };

  struct Optimizer {
    enum class Kind { kAdamW, kSgd };
    Kind kind = Kind::kAdamW;
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.99;
    double epsilon = 1e-8;
    double momentum = 0.9;       ///< of SGD
    double weight_decay = 0.1;   ///< of matrices and embeddings; biases and gains have none
    double clip_norm = 1;        ///< 0: never
    double average_decay = 0;    ///< of the moving average of the weights; 0: none
    double outlier_deviations = 0;  ///< a step whose loss or gradient norm lies this far above is left out; 0: never
  };

  struct Schedule {
    enum class Kind { kConstant, kLinear, kCosine, kInverseSqrt, kWarmupStableDecay };
    Kind kind = Kind::kCosine;
    int64_t warmup_steps = 100;
    double final_fraction = 0.1;  ///< of the learning rate, at the end of kLinear, kCosine and kWarmupStableDecay
    double decay_fraction = 0.2;  ///< of all steps, at the end of kWarmupStableDecay
  };

  struct Run {
    enum class Precision { kF32, kBf16 };
    std::string init;           ///< a model file or directory that the weights begin as; empty: drawn from the seed
    uint64_t seed = 1;
    int64_t steps = 1000;
    int64_t batch = 16;         ///< sequences of a step
    int64_t micro_batch = 0;    ///< sequences at once; 0: all of a step. Changes the memory, not the result (1e-6)
    int64_t sequence = 128;     ///< tokens of a sequence; a task has its own
    Precision precision = Precision::kF32;  ///< of what enters matrix products; kBf16 needs an instruction set with bf16
    int64_t evaluate_every = 250;
    int64_t save_every = 500;
    enum class SaveAs { kF32, kBf16 };
    SaveAs save_as = SaveAs::kF32;  ///< weights in model.safetensors; what a run goes on from is f32 always
    int64_t log_every = 10;
    int64_t keep = 2;           ///< checkpoints, besides the best
    int64_t patience = 0;       ///< evaluations without a better loss before the run ends; 0: never
    double min_improvement = 0;
  };

  Model model;
  Data data;
  Optimizer optimizer;
  Schedule schedule;
  Run run;

  /// Names of the fields that were set by name, also to their defaults: with run.init those of the section model have to agree with the file.
  std::vector<std::string> given;
};

/// One field of TrainConfig as files and command lines name it.
struct TrainConfigField {
  std::string name;      ///< "optimizer.learning_rate"
  std::string help;      ///< one line
  std::string range;     ///< "0 to 10", "adamw, sgd", "text", ...
  std::string value;     ///< as set_train_field() takes it
  bool is_default = true;
};

/// Reads a configuration: a JSON object of the sections model, data, optimizer, schedule and run. What is left out has its
/// default. `name` begins every message. Errors: kCorruptData for what is no JSON; kInvalidArgument for a field that does not
/// exist (with the one that was probably meant), a wrong type, a value out of its range.
REGARD_API TrainConfig parse_train_config(std::string_view json, std::string_view name);

/// Sets one field from "section.field=value". Lists are separated by commas. Errors: kInvalidArgument as above.
REGARD_API void set_train_field(TrainConfig& config, std::string_view assignment);

/// All fields with their help, range and value in `config`, in the order of the sections.
REGARD_API std::vector<TrainConfigField> train_config_fields(const TrainConfig& config);

/// The whole configuration as JSON that parse_train_config() reads back to an equal one.
REGARD_API std::string train_config_json(const TrainConfig& config);

/// What happens while a run goes on.
struct TrainEvent {
  enum class Kind {
    kStart,       ///< after everything is loaded: text says what is trained on what
    kStep,        ///< a step was taken
    kSkipped,     ///< a step was left out as an outlier
    kEvaluation,  ///< the whole validation split was measured
    kCheckpoint,  ///< text is the directory that was written
    kNote,        ///< text says what is unusual: a run that does not go on from what `latest` shows
  };
  Kind kind = Kind::kStep;
  int64_t step = 0;   ///< steps done
  int64_t steps = 0;  ///< of the whole run
  double loss = 0;    ///< nats per counted token, of this step or of the validation split
  double accuracy = 0;    ///< of an evaluation: the share of labels that were the most likely token
  int64_t questions = 0;  ///< of a task's evaluation: how many were asked, none of them one to train on
  int64_t solved = 0;     ///< of these, how many without a mistake
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  double tokens_per_second = 0;
  double seconds_left = 0;
  double peak_share = 0;  ///< of the multiply-adds that the threads could do, measured once at the start; 0: not known
  bool best = false;  ///< an evaluation that is better than all before
  std::string text;
};

enum class TrainStart {
  kNew,     ///< the directory holds no run yet, and nothing of the names that a run has
  kResume,  ///< go on from the checkpoint that `latest` shows, or where it shows none from the newest one that is whole
};

struct TrainOptions {
  std::string directory;  ///< made when it is not there
  TrainStart start = TrainStart::kNew;
  const StopToken* stop = nullptr;
  std::function<void(const TrainEvent&)> on_event;  ///< called on the calling thread
};

/// How a run ended.
enum class TrainEnd { kComplete, kStopped, kNoImprovement };

struct TrainResult {
  TrainEnd end = TrainEnd::kComplete;
  int64_t step = 0;
  double loss = 0;             ///< of the last step that was taken; NaN when none was
  double validation_loss = 0;  ///< of the last evaluation; NaN when there was none
  double best_loss = 0;        ///< of all evaluations; NaN when there was none
  int64_t best_step = 0;
  int64_t tokens = 0;          ///< counted labels of all steps
  std::string checkpoint;      ///< the directory that was written last
};

/// Trains a model as `config` says and keeps the run in `options.directory`:
///
///     train.json      the whole configuration
///     log.jsonl       a line for each logged step and each evaluation
///     loss.png .svg   the curves, made at the end
///     latest, best    links to checkpoints step-000001000/ with config.json, model.safetensors, tokenizer.json and state
///
/// With data.objective kClass the model learns the class that each JSON line names; the names stand in the checkpoint's config.json as id2label, and
/// Model::classify() reads texts with it. Its weights are drawn from the seed: run.init is for models that predict tokens.
/// With run.init the weights begin as those of a model file: GGUF with any type of weights, a Hugging Face directory, a checkpoint. The shape is
/// the file's; of the section model only dropouts, label_smoothing, z_loss and recompute are free, and a field that was set to something
/// else is refused. The tokenizer is the file's, unless data.tokenizer names one that has the same pieces. Checkpoints are of the file's family, with
/// its own fields in config.json, and a run that goes on needs them alone. kUnsupported names what a file has and training has not.
/// The layout of a checkpoint is that of Hugging Face directories. Each is written under another name, made durable and then
/// renamed: whatever moment the machine stops, `latest` shows a complete one.
/// Determinism: the result is a function of the configuration and the data. It does not depend on the number of threads, nor
/// on how often the run was stopped and resumed, bit for bit; on micro-batches to 1e-6.
/// When `stop` is requested, the step at hand is given up, a checkpoint of the last whole step is written, and the result says kStopped.
/// Nothing in the directory changes before a run is under way: the configuration agrees, the data are read and there is memory for a step. No checkpoint
/// is removed before a newer one is whole. Those that are later than the one gone on from stay until the run comes to their step.
/// Errors: those of Model::load for run.init; kInvalidArgument (a configuration that contradicts itself, the data or run.init; a run that is there already; with kResume, a
/// configuration, data or tokenizer other than the run's, naming the field); kUnavailable when another process trains in the
/// directory; kNumeric when the loss or a gradient is not finite (the checkpoints stay as they are); kNotFound, kCorruptData, kIo,
/// kResourceExhausted.
REGARD_API TrainResult train(const TrainConfig& config, const TrainOptions& options);

struct TaskEvalOptions {
  /// Which checkpoint of the run.
  enum class Checkpoint { kLatest, kBest } checkpoint = Checkpoint::kLatest;
  /// How many, the first ones of the validation split, 1 to 100 million; nothing: those of the run's own evaluations, 1,000 of a task and every text of a
  /// run on classes.
  std::optional<int64_t> questions;
  /// Of a run on classes: JSON lines to ask about, instead of those that the run measured on.
  std::vector<std::string> files;
  const StopToken* stop = nullptr;
};

/// How well a checkpoint does its task, or tells classes apart.
struct TaskScore {
  std::string task;        ///< "class" of a run on classes, whose questions are texts with one label each
  std::string checkpoint;  ///< the directory that was measured
  int64_t questions = 0;   ///< that were asked; none of them is one to train on
  int64_t solved = 0;      ///< without a mistake, which greedy generation then does too
  int64_t labels = 0;      ///< single answers
  int64_t correct = 0;
  double loss = 0;  ///< nats per label
};

/// Asks a checkpoint of the run in `directory` questions of its task, of any architecture, or the classes of texts; those of a run on classes are read
/// again from the files that it names. Determinism: as train().
/// Errors: kNotFound for a directory without a run, kInvalidArgument for a run that predicts texts, a number of questions out of range or files for a task;
/// kCorruptData for weights that are not those of the configuration, naming the tensor; kCancelled; kIo.
REGARD_API TaskScore evaluate_task(const std::string& directory, const TaskEvalOptions& options = {});

/// The loss curves of a run's log.jsonl as text of the given size, for a terminal: training with '.', validation with 'o'.
/// Empty when the log has fewer than two points. Errors: kNotFound, kCorruptData.
REGARD_API std::string draw_loss_curve(const std::string& log_path, int columns, int rows);

}  // namespace regard
