// The options of `attend` that ask for gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "option.h"
#include "regard/attention_backward.h"
#include "tensor_input.h"

namespace regard::cli {

std::vector<Option> gradient_options();

/// The names of those that write a file.
const std::vector<std::string_view>& gradient_outputs();

/// What comes in and what goes out.
class GradientCall {
 public:
  /// Reads the files, checks the paths and takes all memory. Errors: UsageError, naming the option, for arrays that do not
  /// fit, and for an option that needs another one; as load_tensor(), output_path() and empty_tensor().
  GradientCall(const Arguments& arguments, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);
  GradientCall(const GradientCall&) = delete;
  GradientCall& operator=(const GradientCall&) = delete;

  /// Computes what was asked for, if anything, from what attend() was given and gave.
  void compute(Tensor& q, Tensor& k, Tensor& v, Tensor& out, Tensor& lse, const Mask& mask, const AttentionOptions& options);

  /// The gradients of queries and keys; without a shape when they are not wanted.
  Tensor& dq() { return result("dq").tensor; }
  Tensor& dk() { return result("dk").tensor; }

  void save(const std::function<void(const std::string& path, const Tensor& tensor)>& write) const;

 private:
  struct Result {
    std::string option, path;
    Tensor tensor;
    TensorView<float> view() { return path.empty() ? TensorView<float>{} : tensor.view(); }
  };
  Result& result(std::string_view option);

  Tensor dout_, dlse_;
  std::vector<Result> results_;
};

}  // namespace regard::cli
