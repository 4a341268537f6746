// The options of `attend` that add to the scores: biases, a sink.
#pragma once

#include <vector>

#include "option.h"
#include "regard/attention.h"
#include "tensor_input.h"

namespace regard::cli {

std::vector<Option> score_term_options();

/// The arrays of these options; what a call is given points into them.
class ScoreTermInputs {
 public:
  /// Reads the files. Errors: UsageError, naming the option, for arrays that do not fit q and k; as load_tensor().
  ScoreTermInputs(const Arguments& arguments, const Tensor& q, const Tensor& k);
  ScoreTermInputs(const ScoreTermInputs&) = delete;
  ScoreTermInputs& operator=(const ScoreTermInputs&) = delete;

  /// Puts the terms into the options of a call, which must not outlive this object.
  void apply(AttentionOptions& options);

 private:
  Tensor bias_, t5_table_, sink_;
  std::optional<Alibi> alibi_;
  std::optional<T5Bias> t5_;
};

}  // namespace regard::cli
