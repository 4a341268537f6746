// Writing safetensors files. The reader is safetensors.h.
//
// Source: huggingface/safetensors, README.md ("Format").
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "regard/dtype.h"
#include "runtime/atomic_file.h"

namespace regard {

/// A tensor to be written; its bytes stay the caller's.
struct SafetensorsEntry {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;  ///< C order
  std::span<const std::byte> bytes;
};

/// The length and the header, padded with spaces so that the data begins at a multiple of 64. Tensors lie in the given order. `metadata`
/// becomes __metadata__; other programs expect {"format", "pt"} there.
/// Errors: kInvalidArgument for a name twice, a type that the format has not, or bytes that do not fit the shape.
Result<std::string> safetensors_header(std::span<const SafetensorsEntry> tensors, std::span<const std::pair<std::string, std::string>> metadata = {});

/// Writes a whole file or nothing. Errors: as safetensors_header(), and those of AtomicFile.
Result<Done> write_safetensors(const std::string& path, std::span<const SafetensorsEntry> tensors,
                               std::span<const std::pair<std::string, std::string>> metadata = {}, FileLayer& layer = system_file_layer());

}  // namespace regard
