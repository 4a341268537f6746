// The options of `attend` that come to the scores: biases, a sink, dropout.
#pragma once

#include <vector>

#include "option.h"
#include "regard/attention.h"
#include "tensor_input.h"

namespace regard::cli {

std::vector<Option> score_term_options();

/// What the arrays have to fit: a batch row for each packed sequence, lengths of the longest ones.
struct TermSizes {
  int64_t batch = 0, heads = 0, q_len = 0, kv_len = 0, dim = 0;
};

/// The arrays of these options; what a call is given points into them.
class ScoreTermInputs {
 public:
  /// Reads the files. Errors: UsageError, naming the option, for arrays that do not fit; as load_tensor().
  ScoreTermInputs(const Arguments& arguments, const TermSizes& sizes);
  ScoreTermInputs(const ScoreTermInputs&) = delete;
  ScoreTermInputs& operator=(const ScoreTermInputs&) = delete;

  /// Puts the terms into the options of a call, which must not outlive this object.
  void apply(AttentionOptions& options);

 private:
  Tensor bias_, t5_table_, sink_, xl_u_, xl_v_, xl_r_;
  std::optional<Alibi> alibi_;
  std::optional<T5Bias> t5_;
  std::optional<TransformerXl> xl_;
  std::optional<Dropout> dropout_;
};

}  // namespace regard::cli
