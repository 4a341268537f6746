// A model file as something to train: its shape in the words of the trainer, and its numbers under the names of parameters. Training
// names parameters as Hugging Face directories of the family do (nn/training/parameter_names.cc), so the table of families is all it takes.
#pragma once

#include <string>
#include <string_view>

#include "model/family.h"
#include "model/open.h"
#include "nn/parameters.h"
#include "regard/stop_token.h"

namespace regard::model {

class TrainableFile {
 public:
  /// Opens a GGUF file or a directory, with its tokenizer. No tensor is read yet.
  /// Errors: those of Model::load; kUnsupported, naming it, for what a file has and training has not: biases in other layers
  /// than a family has them, rotations of a part of a head in a GGUF file of the llama family.
  explicit TrainableFile(const std::string& path);

  const std::string& path() const noexcept { return opened_.path; }
  const OpenedModel& opened() const noexcept { return opened_; }
  std::string_view family() const noexcept { return family_->name; }

  /// The shape, complete; dropouts and the like have their defaults. Scalings of rotary positions that depend on the length of the text
  /// take it for `sequence` tokens.
  nn::TransformerConfig shape(int64_t sequence) const;

  /// Fills all parameters of a Transformer of shape(); double, for checks, takes the same numbers in f32. Memory: one tensor in f32 twice.
  /// Errors: kCorruptData for tensors that are missing, too many or of another shape; kUnsupported, kIo; kCancelled.
  template <class T>
  void read(nn::ParameterStore<T>& parameters, const StopToken* stop) const;

  /// The config.json of a checkpoint of this family; `dtype` is the type of its tensors. Not for the families "regard" and "t5", whose shape
  /// says all.
  std::string config_json(std::string_view dtype) const;

 private:
  OpenedModel opened_;
  const Family* family_;
  DecoderConfig config_;
  nn::Biases biases_ = nn::Biases::kNone;
};

extern template void TrainableFile::read(nn::ParameterStore<float>&, const StopToken*) const;
extern template void TrainableFile::read(nn::ParameterStore<double>&, const StopToken*) const;

}  // namespace regard::model
