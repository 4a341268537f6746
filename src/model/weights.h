// Reading the weights of a decoder, one tensor at a time.
#pragma once

#include "model/decoder.h"
#include "model/family.h"
#include "model/open.h"

namespace regard::model {

struct LoadedDecoder {
  DecoderConfig config;
  DecoderWeights weights;
  uint64_t weight_bytes = 0;  ///< memory that they take
};

/// Reads the tensors that `family` names from an opened model. Memory beside the packed weights: 64 rows of a matrix, or a whole
/// one that the file has transposed.
/// Errors: kCorruptData naming all missing tensors, all that nobody asked for, or the one whose shape is not the expected
/// one; kUnsupported for tensor types that no kernel multiplies; kCancelled.
LoadedDecoder read_decoder(OpenedModel& opened, const Family& family, const ModelOptions& options);

}  // namespace regard::model
