// Tensors by name over one file or several: bookkeeping and reading. Opening files is in tensor_source_open.cc.
#include "format/tensor_source.h"

#include <numeric>

#include "format/names.h"

namespace regard {

TensorSource::TensorSource(WeightFormat format, std::vector<std::unique_ptr<ByteSource>> files) : format_(format), files_(std::move(files)) {}
TensorSource::TensorSource(TensorSource&&) noexcept = default;
TensorSource& TensorSource::operator=(TensorSource&&) noexcept = default;
TensorSource::~TensorSource() = default;

Result<Done> TensorSource::add(std::vector<TensorInfo> tensors, size_t file, std::string_view name) {
  for (TensorInfo& tensor : tensors) {
    const auto [place, fresh] = by_name_.emplace(tensor.name, tensors_.size());
    if (!fresh) return corrupt("[weights] {}: tensor \"{}\" stands in another part already", name, printable(tensor.name));
    tensors_.push_back(std::move(tensor));
    file_of_.push_back(file);
    used_.push_back(false);
  }
  return Done{};
}

Result<TensorSource> TensorSource::from_gguf(std::vector<std::unique_ptr<ByteSource>> parts, const std::vector<std::string>& names,
                                             std::optional<GgufFile> first) {
  TensorSource source(WeightFormat::kGguf, std::move(parts));
  const auto count = static_cast<int64_t>(source.files_.size());
  std::optional<int64_t> announced;
  for (size_t i = 0; i < source.files_.size(); ++i) {
    REGARD_TRY(GgufFile file, i == 0 && first ? Result<GgufFile>(*std::move(first)) : read_gguf(*source.files_[i], names[i]));
    constexpr int64_t kMax = 65'535;
    REGARD_TRY(const auto number, file.metadata.optional_integer("split.no", 0, kMax));
    REGARD_TRY(const auto of, file.metadata.optional_integer("split.count", 0, kMax));
    if (of.value_or(1) > 1 || count > 1) {
      if (of.value_or(1) != count) return corrupt("[weights] {}: says that it is one of {} parts, {} are given", names[i], of.value_or(1), count);
      if (number.value_or(-1) != static_cast<int64_t>(i))
        return corrupt("[weights] {}: says that it is part number {}, expected {}", names[i], number.value_or(-1), i);
      REGARD_TRY(const auto total, file.metadata.optional_integer("split.tensors.count", 0, std::numeric_limits<int32_t>::max()));
      if (total && announced && *total != *announced) return corrupt("[weights] {}: {} tensors in all parts, an earlier part says {}", names[i], *total, *announced);
      if (total) announced = total;
    }
    REGARD_CHECK(source.add(std::move(file.tensors), i, names[i]));
    if (i == 0) source.metadata_ = std::move(file.metadata);
  }
  if (announced && *announced != static_cast<int64_t>(source.tensors_.size()))
    return corrupt("[weights] {}: {} tensors are announced for all parts, {} are there", names[0], *announced, source.tensors_.size());
  return source;
}

Result<TensorSource> TensorSource::from_safetensors(std::vector<std::unique_ptr<ByteSource>> shards, const std::vector<std::string>& names,
                                                    const SafetensorsIndex* index) {
  TensorSource source(WeightFormat::kSafetensors, std::move(shards));
  for (size_t i = 0; i < source.files_.size(); ++i) {
    REGARD_TRY(SafetensorsFile file, read_safetensors(*source.files_[i], names[i]));
    REGARD_CHECK(source.add(std::move(file.tensors), i, names[i]));
  }
  if (index == nullptr) return source;
  for (const auto& [name, file] : index->tensors) {
    const auto found = source.by_name_.find(name);
    if (found == source.by_name_.end() || source.file_of_[found->second] != file)
      return corrupt("[weights] {}: tensor \"{}\" is not in this file, where the index puts it", index->files[file], printable(name));
  }
  if (index->tensors.size() != source.tensors_.size())
    return corrupt("[weights] the files hold {} tensors, the index names {}", source.tensors_.size(), index->tensors.size());
  return source;
}

uint64_t TensorSource::file_bytes() const noexcept {
  return std::accumulate(files_.begin(), files_.end(), uint64_t{0}, [](uint64_t sum, const auto& file) { return sum + file->size(); });
}

const TensorInfo* TensorSource::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<const TensorInfo*> TensorSource::take(std::string_view name) {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return failure(Code::kNotFound, "[weights] there is no tensor \"{}\"", printable(name));
  used_[found->second] = true;
  return &tensors_[found->second];
}

bool TensorSource::ignore(std::string_view name) { return static_cast<bool>(take(name)); }

Result<Done> TensorSource::keep_rows(std::string_view name, int64_t rows) {
  const auto at = by_name_.find(std::string(name));
  if (at == by_name_.end()) return failure(Code::kNotFound, "there is no tensor {}", name);
  TensorInfo& tensor = tensors_[at->second];
  if (tensor.shape.empty() || rows < 1 || rows > tensor.shape[0])
    return failure(Code::kCorruptData, "tensor {} has shape {}; {} rows were announced", name, shape_text(tensor.shape), rows);
  tensor.bytes = tensor.bytes / static_cast<uint64_t>(tensor.shape[0]) * static_cast<uint64_t>(rows);
  tensor.shape[0] = rows;
  return Done{};
}

std::vector<std::string> TensorSource::unused() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (!used_[i]) names.push_back(tensors_[i].name);
  return names;
}

Result<size_t> TensorSource::number_of(const TensorInfo& tensor) const {
  const auto found = by_name_.find(tensor.name);
  const bool ours = found != by_name_.end() && tensors_[found->second].bytes == tensor.bytes && tensors_[found->second].offset == tensor.offset;
  if (!ours) return failure(Code::kInvalidArgument, "[weights] tensor \"{}\" is not one of this source", printable(tensor.name));
  return found->second;
}

Result<Done> TensorSource::read(const TensorInfo& tensor, uint64_t first, std::span<uint8_t> out) const {
  REGARD_TRY(const size_t number, number_of(tensor));
  if (first > tensor.bytes || out.size() > tensor.bytes - first) {
    return failure(Code::kInvalidArgument, "[weights] tensor \"{}\": {} bytes from {} on, it has {}", printable(tensor.name), out.size(), first, tensor.bytes);
  }
  return files_[file_of_[number]]->read_at(tensor.offset + first, out);
}

Result<Done> TensorSource::read(const TensorInfo& tensor, std::span<uint8_t> out) const {
  if (out.size() != tensor.bytes) {
    return failure(Code::kInvalidArgument, "[weights] tensor \"{}\" has {} bytes, the memory for it {}", printable(tensor.name), tensor.bytes, out.size());
  }
  return read(tensor, 0, out);
}

std::span<const uint8_t> TensorSource::view(const TensorInfo& tensor) const {
  const auto number = number_of(tensor);
  if (!number) return {};
  return files_[file_of_[*number]]->view(tensor.offset, tensor.bytes);
}

}  // namespace regard
