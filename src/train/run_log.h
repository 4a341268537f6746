// The log of a run: a line of JSON for each logged step and each evaluation, in rising steps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/atomic_file.h"

namespace regard::train_loop {

/// What curves are drawn from.
struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};
struct LossCurves {
  std::vector<LossPoint> training, validation;
};

class RunLog {
 public:
  /// Opens the log to append to it. Lines of steps above `step` are taken away: they belong to what a stopped process had not saved.
  /// A last line without an end is taken away too. Errors: kIo.
  static Result<RunLog> open(const std::string& path, int64_t step, FileLayer& layer = system_file_layer());

  RunLog(RunLog&& other) noexcept;
  RunLog& operator=(RunLog&&) = delete;
  ~RunLog();

  struct Step {
    int64_t step = 0;
    double loss = 0, learning_rate = 0, gradient_norm = 0, seconds = 0;
    int64_t tokens = 0;
    bool skipped = false;
  };
  Result<Done> step(const Step& step);
  struct Evaluation {
    int64_t step = 0;
    double loss = 0, accuracy = 0;
    int64_t counted = 0;
    int64_t questions = 0, solved = 0;  ///< no questions: not said
    bool best = false;
  };
  Result<Done> evaluation(const Evaluation& evaluation);

 private:
  RunLog(std::string path, FileLayer& layer) : path_(std::move(path)), layer_(&layer) {}
  Result<Done> append(std::string line);

  std::string path_;
  FileLayer* layer_;
  int descriptor_ = -1;
};

/// The curves of a log. Errors: kNotFound, kIo; kCorruptData with the number of a line that is none of a log.
Result<LossCurves> read_loss_curves(const std::string& path);

}  // namespace regard::train_loop
