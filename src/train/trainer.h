// The loop: batch, gradients, update, and every so often a measurement and a checkpoint. It knows models, data and files only by
// their interfaces, so that tests run it with a model of a page and a file layer that fails.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/training_model.h"
#include "regard/train.h"
#include "runtime/atomic_file.h"
#include "runtime/thread_pool.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/run_directory.h"
#include "train/run_log.h"
#include "train/state_file.h"

namespace regard::train_loop {

/// What is trained on what. Everything outlives the trainer.
struct TrainerParts {
  nn::TrainingModel& model;
  const train_data::BatchSource& training;
  const train_data::BatchSource* validation = nullptr;  ///< without it nothing is measured
  std::string model_config;                             ///< the config.json of a checkpoint
  std::string tokenizer;                                ///< its tokenizer.json; empty: none
  uint64_t data_hash = 0;
  double operations_per_token = 0;  ///< of the matrix products and attention of a step; 0: not known
  std::vector<std::pair<std::string, std::string>> files_beside = {};  ///< more files of a checkpoint: name and text
};

class Trainer {
 public:
  /// Takes the directory and, with kResume, reads the state of its newest checkpoint. Nothing that is there changes yet. Errors: as train().
  Trainer(const TrainConfig& config, const TrainerParts& parts, const TrainOptions& options, ThreadPool& pool,
          FileLayer& layer = system_file_layer());

  /// Trains to the end, or to a stop. Called once. Errors: as train().
  TrainResult run();

 private:
  using Clock = std::chrono::steady_clock;

  void resume();
  void begin();
  void check_identity(const RunIdentity& saved) const;
  Spans spans();
  struct Gradients {
    nn::LossSum sum;
    int64_t counted = 0;
    double seconds = 0;
  };
  Gradients gradients();
  void take_step();
  bool is_outlier(double loss, double norm);
  bool evaluation_is_due() const;
  void evaluate();
  bool save_is_due() const;
  void save();
  Result<Done> write_checkpoint(const std::string& directory);
  TrainResult finish(TrainEnd end);
  void emit(TrainEvent event) const;

  TrainConfig config_;
  TrainerParts parts_;
  TrainOptions options_;
  ThreadPool& pool_;
  FileLayer& layer_;
  nn::ParameterStore<float>& parameters_;
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;
  RunIdentity identity_;
  std::optional<RunDirectory> directory_;
  std::optional<RunLog> log_;
  RunState state_;
  train_data::Batch batch_, evaluation_batch_;
  std::optional<Gradients> first_gradients_;  // of the first step of a new run, which are computed before anything is written
  int64_t saved_step_ = -1;
  std::string resumed_from_;  // the checkpoint, of a run that goes on
  bool best_is_unsaved_ = false;  // the last evaluation was the best and has no checkpoint yet
  double last_loss_;
  double seconds_per_step_ = 0;  // smoothed
  double peak_ = 0;              // operations per second that the threads can do
  Clock::time_point begin_;
};

}  // namespace regard::train_loop
