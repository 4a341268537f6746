#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>

#include "base/check.h"
#include "base/half.h"
#include "format/file_source.h"
#include "format/safetensors_writer.h"
#include "kernels/registry.h"
#include "train/config_table.h"
#include "train/inner_message.h"
#include "train/loss_picture.h"
#include "train/outliers.h"
#include "train/resume_point.h"
#include "train/schedule.h"

namespace regard::train_loop {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kForget = 0.1;  // of the time of a step, when the next one is known

void or_throw(Result<Done> result) { std::move(result).value_or_throw(); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Multiply-adds in registers that the threads of the pool do in a second, all at once: what a step is measured by. About 50 ms.
double measured_peak(ThreadPool& pool) {
  constexpr int64_t kRounds = 50000;
  constexpr double kSeconds = 0.01;
  constexpr int kSamples = 5;
  const auto multiply_adds = kernels::kernels().training->multiply_adds;
  double best = 0;
  std::vector<double> done(static_cast<size_t>(pool.size()));
  for (int sample = 0; sample < kSamples; ++sample) {  // the best, since clocks need a while to rise
    pool.for_each(pool.size(), [&](int64_t i, int) {
      const auto begin = std::chrono::steady_clock::now();
      double operations = 0, seconds = 0;
      while (seconds < kSeconds) {
        operations += multiply_adds(kRounds);
        seconds = seconds_since(begin);
      }
      done[static_cast<size_t>(i)] = operations / seconds;
    });
    best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0));
  }
  return best;
}

// Calls f, which computes with `at_once` sequences; says what helps when there is no memory for them.
template <class F>
void with_memory_for(int64_t at_once, F&& f) {
  const auto refuse = [&](std::string_view why) {
    fail(Code::kResourceExhausted, "[train] there is no memory for {} sequences at once ({}); set run.micro_batch to fewer, which changes the memory alone{}", at_once, why,
         at_once == 1 ? ", or run.sequence or the model to less" : "");
  };
  try {
    f();
  } catch (const Error& error) {
    if (error.code() != Code::kResourceExhausted) throw;
    refuse(inner_message(error.what()));
  } catch (const std::bad_alloc&) {
    refuse("std::bad_alloc");
  }
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const TrainerParts& parts, const TrainOptions& options, ThreadPool& pool, FileLayer& layer)
    : config_(config),
      parts_(parts),
      options_(options),
      pool_(pool),
      layer_(layer),
      parameters_(parts.model.parameters()),
      optimizer_(config.optimizer, parameters_),
      last_loss_(kNone),
      begin_(Clock::now()) {
  if (config.optimizer.average_decay > 0) average_ = std::make_unique<WeightAverage>(config.optimizer.average_decay, parameters_);
  identity_.config = train_config_json(config);
  identity_.data_hash = parts.data_hash;
  identity_.tokenizer_hash = parts.tokenizer.empty() ? 0 : hash_bytes(std::as_bytes(std::span(parts.tokenizer)));
  identity_.layout_hash = hash_layout(parameters_.parameters());
  directory_.emplace(RunDirectory::open(options.directory, options.start, layer).value_or_throw());
  if (options.start == TrainStart::kResume) resume();
}

void Trainer::resume() {
  const ResumePoint point = find_resume_point(directory_->path()).value_or_throw();
  const std::string name = point.directory + "/state";
  const auto source = FileSource::open(name).value_or_throw();
  check_identity(point.head.identity);
  if (const auto read = read_state_spans(*source, point.head, spans(), name); !read) {
    const Failure& why = read.failure();
    if (why.code != Code::kCorruptData) throw_error(why.code, why.message);
    const Failure damaged = damaged_checkpoint(directory_->path(), point.directory, why);
    throw_error(damaged.code, damaged.message);
  }
  state_ = point.head.state;
  saved_step_ = state_.step;
  resumed_from_ = point.directory;
  if (point.note.empty()) return;
  TrainEvent event;
  event.kind = TrainEvent::Kind::kNote;
  event.text = point.note;
  emit(event);
}

// Up to here a run can be refused and leaves everything as it was. A new one computes its first gradients before, so that one that has no memory
// for them, or no question to measure on, leaves nothing behind.
void Trainer::begin() {
  const bool is_new = saved_step_ < 0;
  if (is_new && config_.run.steps > 0 && !(options_.stop != nullptr && options_.stop->stop_requested())) {
    try {
      first_gradients_ = gradients();
    } catch (const Error& error) {
      if (error.code() != Code::kCancelled) throw;
    }
  }
  or_throw(is_new ? directory_->begin() : directory_->begin(saved_step_, resumed_from_));
  if (is_new) save();  // from here on the directory holds a checkpoint at every moment
  log_.emplace(RunLog::open(directory_->file("log.jsonl"), state_.step, layer_).value_or_throw());
  or_throw(write_file(directory_->file("train.json"), std::as_bytes(std::span(identity_.config)), Overwrite::kReplace, layer_));
}

void Trainer::check_identity(const RunIdentity& saved) const {
  const TrainConfig before = parse_train_config(saved.config, "the configuration of the run");
  for (const train_config::Field& field : train_config::fields()) {
    const auto now = field.get(config_), then = field.get(before);
    if (field.on_resume == train_config::OnResume::kFree || now == then) continue;
    fail(Code::kInvalidArgument, "[train] {} is '{}', but the run in '{}' began with '{}'; give that, or begin a new run", field.full_name(),
         train_config::value_text(field, now), directory_->path(), train_config::value_text(field, then));
  }
  const auto same = [&](uint64_t now, uint64_t then, std::string_view what) {
    if (now != then) fail(Code::kInvalidArgument, "[train] {} not what the run in '{}' began with", what, directory_->path());
  };
  same(identity_.tokenizer_hash, saved.tokenizer_hash, "the tokenizer is");
  same(identity_.data_hash, saved.data_hash, "the data are");
  same(identity_.layout_hash, saved.layout_hash, "the parameters of the model are");
}

Spans Trainer::spans() {
  Spans all = {parameters_.values(), parameters_.first_moments(), parameters_.second_moments()};
  if (average_) all.push_back(average_->values());
  return all;
}

void Trainer::emit(TrainEvent event) const {
  if (!options_.on_event) return;
  event.step = state_.step;
  event.steps = config_.run.steps;
  options_.on_event(event);
}

TrainResult Trainer::run() {
  if (options_.on_event && parts_.operations_per_token > 0) peak_ = measured_peak(pool_);
  begin();
  const auto stop_wanted = [&] { return options_.stop != nullptr && options_.stop->stop_requested(); };
  try {
    for (;;) {
      if (evaluation_is_due()) evaluate();
      if (save_is_due()) save();
      if (config_.run.patience > 0 && state_.evaluations_since_best >= config_.run.patience) return finish(TrainEnd::kNoImprovement);
      if (state_.step >= config_.run.steps) return finish(TrainEnd::kComplete);
      if (stop_wanted()) return finish(TrainEnd::kStopped);
      take_step();
    }
  } catch (const Error& error) {
    if (error.code() != Code::kCancelled || !stop_wanted()) throw;
    return finish(TrainEnd::kStopped);  // the step or evaluation at hand left everything as it was before it
  }
}

Trainer::Gradients Trainer::gradients() {
  const auto begin = Clock::now();
  const TrainConfig::Run& run = config_.run;
  const int64_t at_once = run.micro_batch > 0 ? std::min(run.micro_batch, run.batch) : run.batch;
  Gradients all;
  with_memory_for(at_once, [&] {
    parts_.training.fill(state_.step * run.batch, run.batch, batch_);
    all.counted = batch_.counted();
    parameters_.zero_gradients();
    // The denominator is that of the whole step and known before its first part, so that parts only ever add up.
    nn::TrainingStep step{run.seed, state_.step, all.counted > 0 ? 1.0 / static_cast<double>(all.counted) : 0};
    for (int64_t first = 0; all.counted > 0 && first < run.batch; first += at_once) {
      const nn::LossSum part =
          parts_.model.forward_backward(pool_, batch_.view(first, std::min(at_once, run.batch - first)), step, options_.stop);
      all.sum.nats += part.nats;
      all.sum.objective += part.objective;
      all.sum.counted += part.counted;
    }
  });
  if (all.sum.counted != all.counted) fail(Code::kInternal, "[train] the model counted {} labels of {}", all.sum.counted, all.counted);
  all.seconds = seconds_since(begin);
  return all;
}

void Trainer::take_step() {
  const auto begin = Clock::now();
  const TrainConfig::Run& run = config_.run;
  const double seconds_before = first_gradients_ ? first_gradients_->seconds : 0;
  const Gradients computed = first_gradients_ ? *std::exchange(first_gradients_, std::nullopt) : gradients();
  const nn::LossSum& sum = computed.sum;
  const int64_t counted = computed.counted;

  const double loss = counted > 0 ? sum.nats / static_cast<double>(counted) : 0;
  const double norm = optimizer_.gradient_norm(pool_);
  if (!std::isfinite(loss) || !std::isfinite(sum.objective) || !std::isfinite(norm)) {
    fail(Code::kNumeric, "[train] step {}: the loss is {} and the length of the gradient {}; the last checkpoint is of step {}. "
         "Try a lower optimizer.learning_rate, a longer schedule.warmup_steps or a smaller optimizer.clip_norm", state_.step, loss, norm, saved_step_);
  }
  const double rate = learning_rate(config_.schedule, config_.optimizer.learning_rate, state_.step, run.steps);
  const bool skipped = counted == 0 || is_outlier(loss, norm);
  if (!skipped) {
    const double clip = config_.optimizer.clip_norm;
    optimizer_.update(pool_, ++state_.updates, rate, clip > 0 && norm > clip ? clip / norm : 1);
    if (average_) average_->update(pool_);
  }
  ++state_.step;
  state_.tokens += counted;
  last_loss_ = loss;

  const double seconds = seconds_before + seconds_since(begin);
  seconds_per_step_ = seconds_per_step_ == 0 ? seconds : (1 - kForget) * seconds_per_step_ + kForget * seconds;
  if (state_.step % run.log_every == 0 || state_.step == run.steps || skipped) {
    or_throw(log_->step({state_.step, loss, rate, norm, seconds_since(begin_), state_.tokens, skipped}));
  }
  TrainEvent event;
  event.kind = skipped ? TrainEvent::Kind::kSkipped : TrainEvent::Kind::kStep;
  event.loss = loss;
  event.learning_rate = rate;
  event.gradient_norm = norm;
  event.tokens_per_second = static_cast<double>(run.batch * batch_.seq) / seconds_per_step_;
  event.seconds_left = seconds_per_step_ * static_cast<double>(run.steps - state_.step);
  if (peak_ > 0) event.peak_share = event.tokens_per_second * parts_.operations_per_token / peak_;
  emit(event);
}

bool Trainer::is_outlier(double loss, double norm) {
  const double limit = config_.optimizer.outlier_deviations;
  if (limit <= 0) return false;
  const bool outlier = deviations_above(state_.recent_losses, loss) > limit || deviations_above(state_.recent_norms, norm) > limit;
  remember(state_.recent_losses, loss);
  remember(state_.recent_norms, norm);
  return outlier;
}

bool Trainer::evaluation_is_due() const {
  if (parts_.validation == nullptr || state_.step == 0 || state_.evaluated_step == state_.step) return false;
  const int64_t every = config_.run.evaluate_every;
  return state_.step == config_.run.steps || (every > 0 && state_.step % every == 0);
}

void Trainer::evaluate() {
  const WeightAverage::Shown shown(average_.get());
  const int64_t all = parts_.validation->pass();
  const int64_t at_once = config_.run.micro_batch > 0 ? config_.run.micro_batch : config_.run.batch;
  nn::LossSum sum;
  for (int64_t first = 0; first < all; first += at_once) {
    const int64_t count = std::min(at_once, all - first);
    nn::LossSum part;
    with_memory_for(count, [&] {
      parts_.validation->fill(first, count, evaluation_batch_);
      part = parts_.model.evaluate(pool_, evaluation_batch_.view(0, count), options_.stop);
    });
    sum.nats += part.nats;
    sum.counted += part.counted;
    sum.correct += part.correct;
    sum.sequences += part.sequences;
    sum.exact += part.exact;
  }
  if (sum.counted == 0) fail(Code::kInvalidArgument, "[train] the validation split has nothing to predict");
  const double loss = sum.nats / static_cast<double>(sum.counted), accuracy = static_cast<double>(sum.correct) / static_cast<double>(sum.counted);
  if (!std::isfinite(loss)) {
    fail(Code::kNumeric, "[train] step {}: the loss of the validation split is {}; the last checkpoint is of step {}", state_.step, loss, saved_step_);
  }
  const bool best = !state_.best_loss || loss < *state_.best_loss - config_.run.min_improvement;
  state_.validation_loss = loss;
  state_.evaluated_step = state_.step;
  state_.evaluations_since_best = best ? 0 : state_.evaluations_since_best + 1;
  if (best) {
    state_.best_loss = loss;
    state_.best_step = state_.step;
    best_is_unsaved_ = true;
  }
  const bool questions = parts_.validation->sequences() == train_data::BatchSource::Sequences::kQuestions;
  const int64_t asked = questions ? sum.sequences : 0, solved = questions ? sum.exact : 0;
  or_throw(log_->evaluation({state_.step, loss, accuracy, sum.counted, asked, solved, best}));
  TrainEvent event;
  event.kind = TrainEvent::Kind::kEvaluation;
  event.loss = loss;
  event.accuracy = accuracy;
  event.questions = asked;
  event.solved = solved;
  event.best = best;
  emit(event);
}

bool Trainer::save_is_due() const {
  if (best_is_unsaved_) return true;
  const int64_t every = config_.run.save_every;
  return saved_step_ != state_.step && (state_.step == config_.run.steps || (every > 0 && state_.step % every == 0));
}

void Trainer::save() {
  if (!optimizer_.values_are_finite(pool_)) {
    fail(Code::kNumeric, "[train] step {}: a parameter is not finite; the last checkpoint is of step {}", state_.step, saved_step_);
  }
  const auto is_best = best_is_unsaved_ ? RunDirectory::IsBest::kYes : RunDirectory::IsBest::kNo;
  or_throw(directory_->save(state_.step, is_best, config_.run.keep, [this](const std::string& into) { return write_checkpoint(into); }));
  best_is_unsaved_ = false;
  saved_step_ = state_.step;
  TrainEvent event;
  event.kind = TrainEvent::Kind::kCheckpoint;
  event.text = directory_->checkpoint(state_.step);
  emit(event);
}

Result<Done> Trainer::write_checkpoint(const std::string& into) {
  const auto text_file = [&](std::string_view name, const std::string& text) {
    return write_file(fmt::format("{}/{}", into, name), std::as_bytes(std::span(text)), Overwrite::kReplace, layer_);
  };
  REGARD_CHECK(text_file("config.json", parts_.model_config));
  if (!parts_.tokenizer.empty()) REGARD_CHECK(text_file("tokenizer.json", parts_.tokenizer));
  for (const auto& [name, text] : parts_.files_beside) REGARD_CHECK(text_file(name, text));
  {
    // What others load is what was measured: the average where there is one.
    const std::span<const float> values = average_ ? average_->values() : parameters_.values();
    std::vector<uint16_t> rounded;
    if (config_.run.save_as == TrainConfig::Run::SaveAs::kBf16) {
      rounded.resize(values.size());
      std::transform(values.begin(), values.end(), rounded.begin(), [](float x) { return float_to_bf16(x); });
    }
    std::vector<SafetensorsEntry> tensors;
    for (const nn::Parameter& p : parameters_.parameters()) {
      const auto begin = static_cast<size_t>(p.offset), size = static_cast<size_t>(p.size);
      if (rounded.empty()) tensors.push_back({p.name, DType::kF32, p.shape, std::as_bytes(values.subspan(begin, size))});
      else tensors.push_back({p.name, DType::kBF16, p.shape, std::as_bytes(std::span(rounded).subspan(begin, size))});
    }
    const std::pair<std::string, std::string> metadata[] = {{"format", "pt"}};
    REGARD_CHECK(write_safetensors(into + "/model.safetensors", tensors, metadata, layer_));
  }
  return write_state(into + "/state", state_, identity_, spans(), layer_);
}

TrainResult Trainer::finish(TrainEnd end) {
  if (saved_step_ != state_.step) save();
  draw_loss_files(directory_->file("log.jsonl"), directory_->file("loss"), layer_);
  TrainResult result;
  result.end = end;
  result.step = state_.step;
  result.loss = last_loss_;
  result.validation_loss = state_.validation_loss.value_or(kNone);
  result.best_loss = state_.best_loss.value_or(kNone);
  result.best_step = state_.best_step;
  result.tokens = state_.tokens;
  result.checkpoint = directory_->checkpoint(saved_step_);
  return result;
}

}  // namespace regard::train_loop
