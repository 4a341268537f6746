// A run of the bigram model in a directory of its own, as tests of the loop and of checkpoints need it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../support/temp_dir.h"
#include "bigram_model.h"
#include "train/trainer.h"

namespace regard::train_test {

inline constexpr int32_t kVocab = 12;

/// The system's, without waiting for the disk: the page cache outlives a killed process, and these tests save thousands of times.
class UnsyncedLayer : public FileLayer {
 public:
  int fsync(int) override { return 0; }
};
inline FileLayer& unsynced_layer() {
  static UnsyncedLayer layer;
  return layer;
}

inline TrainConfig small_config() {
  TrainConfig config;
  config.run.steps = 60;
  config.run.batch = 4;
  config.run.sequence = 8;
  config.run.evaluate_every = 15;
  config.run.save_every = 10;
  config.run.log_every = 1;
  config.schedule.warmup_steps = 5;
  config.optimizer.learning_rate = 0.05;
  config.optimizer.average_decay = 0.9;
  config.optimizer.outlier_deviations = 3;
  return config;
}

/// One process' worth of a run: model, data and trainer, which can be made anew as a program that is started again does.
struct SmallRun {
  SmallRun(const TrainConfig& settings, const std::string& directory, TrainStart start, FileLayer& layer = unsynced_layer())
      : config(settings),
        data(bigram_text(1000, kVocab), {}),
        training(data.part(0, 900), {.seq = config.run.sequence, .seed = config.run.seed}),
        validation(data.part(900, 1000), {.seq = config.run.sequence, .order = train_data::WindowOptions::Order::kInOrder}),
        model(kVocab) {
    options.directory = directory;
    options.start = start;
    options.stop = &stop;
    trainer_layer = &layer;
  }

  TrainResult go() {
    train_loop::TrainerParts parts{model, training, &validation, "{}\n", tokenizer, data.hash()};
    train_loop::Trainer trainer(config, parts, options, pool, *trainer_layer);
    return trainer.run();
  }
  std::vector<float> values() { return {model.parameters().values().begin(), model.parameters().values().end()}; }
  /// Requests a stop when `step` steps are done.
  void stop_after(int64_t step) {
    options.on_event = [this, step](const TrainEvent& event) {
      if (event.kind != TrainEvent::Kind::kCheckpoint && event.step >= step) stop.request_stop();
    };
  }

  TrainConfig config;
  train_data::TokenData data;
  train_data::WindowBatches training, validation;
  BigramModel model;
  std::string tokenizer = "{\"a\": 1}";
  StopToken stop;
  TrainOptions options;
  ThreadPool pool{1};
  FileLayer* trainer_layer;
};

/// What a run that nothing interrupts ends with.
inline const std::vector<float>& uninterrupted(const TrainConfig& config = small_config()) {
  static const std::vector<float> values = [&] {
    const testing_support::TempDir directory;
    SmallRun run(config, directory.path("run"), TrainStart::kNew);
    run.go();
    return run.values();
  }();
  return values;
}

}  // namespace regard::train_test
