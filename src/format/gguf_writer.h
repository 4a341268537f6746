// Writing GGUF files, version 3. The reader is gguf.h.
//
// Source: ggml, docs/gguf.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "regard/dtype.h"
#include "runtime/atomic_file.h"

namespace regard {

GgufValue gguf_value(uint32_t v);
GgufValue gguf_value(float v);
GgufValue gguf_value(bool v);
GgufValue gguf_value(std::string_view v);
GgufValue gguf_value(StringList v);
GgufValue gguf_value(std::span<const int32_t> v);
GgufValue gguf_value(std::span<const float> v);

/// A tensor to be written, without its bytes.
struct GgufTensorHead {
  std::string name;
  DType type = DType::kF32;    ///< F32, F16, BF16 or Q8_0
  std::vector<int64_t> shape;  ///< C order, 1 to 4 axes; the last one a multiple of the type's block
};

/// Everything before the first tensor, padded to the alignment of 32 that the data has. Tensors lie in the given order, each at a
/// multiple of 32. Errors: kInvalidArgument for a name twice or too long, a type that is not written, a shape that does not fit it.
Result<std::string> gguf_head(const GgufMetadata& metadata, std::span<const GgufTensorHead> tensors);

/// The bytes of tensor number i, asked for one after the other.
using TensorBytes = std::function<Result<std::vector<uint8_t>>(size_t i)>;

/// Writes a whole file or nothing, with one tensor in memory at a time. Errors: as gguf_head(), those of `bytes` and of AtomicFile;
/// kInvalidArgument when `bytes` gives another number of bytes than the shape has.
Result<Done> write_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const GgufTensorHead> tensors, const TensorBytes& bytes,
                        Overwrite overwrite = Overwrite::kReplace, FileLayer& layer = system_file_layer());

}  // namespace regard
