// The options of `attend` that say what queries look at: statistics, largest weights, sums of columns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "input.h"
#include "option.h"
#include "regard/attention_weights.h"
#include "tensor_input.h"

namespace regard::cli {

std::vector<Option> look_options();

/// What was asked for, checked before the work begins.
class LookRequest {
 public:
  /// Errors: UsageError for options that need another one; as Mask::parse() for --stats-set.
  LookRequest(const Arguments& arguments, const Bindings& bindings);

  bool empty() const { return stats_path_.empty() && top_path_.empty() && top_weights_path_.empty() && sums_path_.empty(); }

  /// Takes the memory for a call over these tensors. Errors: as empty_tensor().
  void reserve(const Tensor& q, const Tensor& k);
  /// attend(), which takes the statistics along. Errors: as attend_with_statistics().
  void attend(Tensor& q, Tensor& k, Tensor& v, const Mask& mask, const AttentionOptions& options, Tensor& out, TensorView<float> lse);
  /// Computes what is left and writes. Errors: as the functions of attention_weights.h and save_npy().
  void run(Tensor& q, Tensor& k, TensorView<const float> lse, const Mask& mask, const AttentionOptions& options,
           std::vector<WrittenArray>& written);

 private:
  RowStatistics row_statistics(const Tensor& q);
  void save_statistics(std::vector<WrittenArray>& written);
  std::vector<std::string> statistics() const;

  std::string stats_path_, top_path_, top_weights_path_, sums_path_;
  int64_t top_k_ = 0;
  std::optional<Mask> set_;
  Tensor stats_, top_weights_, sums_;
  std::vector<int64_t> top_shape_, top_keys_, largest_keys_;
  std::vector<float> columns_;  // of the statistics, one after another
  bool statistics_done_ = false;
};

}  // namespace regard::cli
