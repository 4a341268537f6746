// Reading the weights of a model, one tensor at a time.
#pragma once

#include "model/decoder.h"
#include "model/family.h"
#include "model/open.h"

namespace regard::model {

struct LoadedStack {
  DecoderConfig config;
  DecoderWeights weights;
};

struct LoadedModel {
  LoadedStack main;                    ///< what has the head: the decoder, or an encoder alone
  std::optional<LoadedStack> encoder;  ///< of an encoder-decoder
  uint64_t weight_bytes = 0;  ///< memory that they take
};

/// Reads the tensors that `family` names from an opened model. Memory beside the packed weights: 64 rows of a matrix, or a whole
/// one that the file has transposed.
/// Errors: kCorruptData naming all missing tensors, all that nobody asked for, or the one whose shape is not the expected
/// one; kUnsupported for tensor types that no kernel multiplies; kCancelled.
LoadedModel read_weights(OpenedModel& opened, const Family& family, const ModelOptions& options);

}  // namespace regard::model
