// safetensors files and the index of sharded ones. Start at read_safetensors; to read the tensors themselves, from one
// file or several, see tensor_source.h.
//
// Source: huggingface/safetensors, README.md ("Format").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "format/byte_source.h"
#include "format/tensor_info.h"

namespace regard {

/// What a header may ask for before it is refused. The format itself stops at 100,000,000 bytes.
struct SafetensorsLimits {
  uint64_t max_header_bytes = uint64_t{16} << 20;
  size_t max_tensors = 65'536;
  size_t max_rank = 8;
  size_t max_name_bytes = 1'024;
};

struct SafetensorsFile {
  uint64_t data_begin = 0;                                     ///< offset of the byte buffer
  std::vector<TensorInfo> tensors;                             ///< in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;   ///< __metadata__, in the order of the header
};

/// Reads and checks the header. `name` begins every message.
/// Refused with kCorruptData: whatever contradicts the format or the size of the file (holes, overlaps, trailing bytes,
/// duplicate names and fields, sizes that differ from shape x element); kUnsupported: other containers (pickle, zip, GGUF,
/// named as what they are) and element types that this library does not have; kResourceExhausted: beyond `limits`.
Result<SafetensorsFile> read_safetensors(const ByteSource& source, std::string_view name, const SafetensorsLimits& limits = {});

/// model.safetensors.index.json: which file holds which tensor. File names stay inside the folder of the index.
struct SafetensorsIndex {
  std::vector<std::string> files;                              ///< each once, sorted
  std::vector<std::pair<std::string, size_t>> tensors;         ///< name, and its position in files; in the order of the text
};
Result<SafetensorsIndex> read_safetensors_index(std::string_view text, std::string_view name, const SafetensorsLimits& limits = {});

}  // namespace regard
