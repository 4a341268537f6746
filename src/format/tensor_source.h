// The weights of a model, wherever they lie: one GGUF file or its parts, one safetensors file or its shards. Tensors are
// found by name and read one at a time, whole or in stretches, so that no file needs to be in memory. Start at
// TensorSource::open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "format/byte_source.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "format/tensor_info.h"

namespace regard {

enum class WeightFormat { kGguf, kSafetensors };

/// How the bytes of the files are reached.
enum class TensorAccess {
  kRead,  ///< read from the open files into the caller's memory; nothing that happens to the files can crash the process
  kMap,   ///< mapped read-only: view() works, and a file that somebody cuts short ends the process with SIGBUS
};

class TensorSource {
 public:
  /// Opens what `path` names: a .gguf file (of a split one its first part, the others are found beside it), a .safetensors
  /// file, a model.safetensors.index.json, or a directory with model.safetensors or that index. Which format a file has is
  /// told by its first bytes. All heads are read and checked, no tensor is.
  /// Refused: as read_gguf and read_safetensors; kNotFound for missing parts; kCorruptData for parts that do not belong
  /// together and tensors that are missing, doubled or not in the file that the index names.
  static Result<TensorSource> open(const std::string& path, TensorAccess access = TensorAccess::kRead);

  /// The same over sources that are open already: one file, or the parts in their order. `first` is the head of the first
  /// part where the caller has read it.
  static Result<TensorSource> from_gguf(std::vector<std::unique_ptr<ByteSource>> parts, const std::vector<std::string>& names,
                                        std::optional<GgufFile> first = std::nullopt);
  static Result<TensorSource> from_safetensors(std::vector<std::unique_ptr<ByteSource>> shards, const std::vector<std::string>& names,
                                               const SafetensorsIndex* index = nullptr);

  TensorSource(TensorSource&&) noexcept;
  TensorSource& operator=(TensorSource&&) noexcept;
  ~TensorSource();

  WeightFormat format() const noexcept { return format_; }
  /// Metadata of the (first) GGUF file; null for safetensors.
  const GgufMetadata* metadata() const noexcept { return metadata_ ? &*metadata_ : nullptr; }
  /// All tensors, file after file, in the order of their bytes.
  const std::vector<TensorInfo>& tensors() const noexcept { return tensors_; }
  /// Bytes of all files together.
  uint64_t file_bytes() const noexcept;

  /// The tensor of this name, or null. Does not count as use.
  const TensorInfo* find(std::string_view name) const noexcept;
  /// The tensor of this name, marked as used; kNotFound names what is missing.
  Result<const TensorInfo*> take(std::string_view name);
  /// Marks a tensor as used, for those that are known and not needed. False when there is none of that name.
  bool ignore(std::string_view name);
  /// From here on the tensor is its first `rows` rows, as if the file had no more. Refused: kNotFound; kCorruptData when it has fewer.
  Result<Done> keep_rows(std::string_view name, int64_t rows);
  /// Names of the tensors that nobody took, in the order of tensors(): the best early sign of a wrong family.
  std::vector<std::string> unused() const;

  /// Reads bytes [first, first + out.size()) of a tensor of this source. kInvalidArgument beyond its end.
  /// Threads: several may read at once.
  Result<Done> read(const TensorInfo& tensor, uint64_t first, std::span<uint8_t> out) const;
  /// Reads a whole tensor: out.size() is tensor.bytes.
  Result<Done> read(const TensorInfo& tensor, std::span<uint8_t> out) const;
  /// The bytes of a tensor where they are in memory already (mapped files), unaligned; empty where they are not.
  std::span<const uint8_t> view(const TensorInfo& tensor) const;

 private:
  TensorSource(WeightFormat format, std::vector<std::unique_ptr<ByteSource>> files);
  /// Adds the tensors of file number `file`; refuses names that are there already.
  Result<Done> add(std::vector<TensorInfo> tensors, size_t file, std::string_view name);
  Result<size_t> number_of(const TensorInfo& tensor) const;

  WeightFormat format_;
  std::vector<std::unique_ptr<ByteSource>> files_;
  std::optional<GgufMetadata> metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> file_of_;       // of each tensor
  std::vector<bool> used_;
  // Positions in tensors_. Keyed by copies, because tensors_ grows while files are added.
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace regard
