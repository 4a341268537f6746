// Which files a path stands for, and opening them.
#include <algorithm>
#include <array>
#include <filesystem>

#include "format/file_source.h"
#include "format/names.h"
#include "format/tensor_source.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

// Every part is an open file; a process may have about a thousand.
constexpr int64_t kMaxParts = 512;
constexpr std::string_view kSingle = "model.safetensors", kIndex = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 20;

bool is_there(const fs::path& path) {
  std::error_code error;  // what cannot be looked at is reported when it is opened
  return fs::exists(path, error);
}

Result<std::unique_ptr<ByteSource>> open_file(const std::string& path, TensorAccess access) {
  REGARD_TRY(File file, File::open(path));
  if (access == TensorAccess::kRead) return std::unique_ptr<ByteSource>(std::make_unique<FileSource>(std::move(file)));
  REGARD_TRY(FileBytes bytes, map_file(file));
  return std::unique_ptr<ByteSource>(std::make_unique<FileBytesSource>(std::move(bytes)));
}

std::string part_ending(int64_t part, int64_t count) { return fmt::format("-{:05}-of-{:05}.gguf", part, count); }

Result<TensorSource> open_gguf(const fs::path& path, TensorAccess access) {
  const std::string name = path.filename().string();
  std::vector<std::unique_ptr<ByteSource>> files;
  std::vector<std::string> names = {name};
  REGARD_TRY(auto first, open_file(path.string(), access));
  REGARD_TRY(GgufFile head, read_gguf(*first, name));
  REGARD_TRY(const auto stated, head.metadata.optional_integer("split.count", 0, 65'535));
  REGARD_TRY(const auto number, head.metadata.optional_integer("split.no", 0, 65'535));
  const int64_t count = std::max<int64_t>(1, stated.value_or(1));
  if (count > 1 && number.value_or(0) != 0)
    return failure(Code::kInvalidArgument, "[weights] {}: part {} of {}; open the first part", name, *number + 1, count);
  files.push_back(std::move(first));
  if (count > kMaxParts) return failure(Code::kResourceExhausted, "[weights] {}: {} parts, the limit is {}", name, count, kMaxParts);
  const std::string ending = part_ending(1, count);
  if (count > 1 && !name.ends_with(ending)) {
    return failure(Code::kInvalidArgument, "[weights] {}: the first of {} parts, which are found by their names, but this one does not end in {}",
                   name, count, ending);
  }
  for (int64_t part = 2; part <= count; ++part) {
    const std::string part_name = name.substr(0, name.size() - ending.size()) + part_ending(part, count);
    REGARD_TRY(auto file, open_file((path.parent_path() / part_name).string(), access));
    files.push_back(std::move(file));
    names.push_back(part_name);
  }
  return TensorSource::from_gguf(std::move(files), names, std::move(head));
}

Result<TensorSource> open_index(const fs::path& path, TensorAccess access) {
  REGARD_TRY(const FileBytes text, read_file(path.string(), kMaxIndexBytes));
  const std::span<const std::byte> bytes = text.bytes();
  REGARD_TRY(const SafetensorsIndex index,
             read_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.filename().string()));
  if (static_cast<int64_t>(index.files.size()) > kMaxParts)
    return failure(Code::kResourceExhausted, "[weights] {}: {} files, the limit is {}", path.filename().string(), index.files.size(), kMaxParts);
  std::vector<std::unique_ptr<ByteSource>> shards;
  for (const std::string& name : index.files) {
    REGARD_TRY(auto file, open_file((path.parent_path() / name).string(), access));
    shards.push_back(std::move(file));
  }
  return TensorSource::from_safetensors(std::move(shards), index.files, &index);
}

Result<TensorSource> open_directory(const fs::path& directory, TensorAccess access) {
  if (is_there(directory / kSingle)) return TensorSource::open((directory / kSingle).string(), access);
  if (is_there(directory / kIndex)) return open_index(directory / kIndex, access);
  const bool pickled = is_there(directory / "pytorch_model.bin") || is_there(directory / "pytorch_model.bin.index.json");
  return failure(Code::kNotFound, "[weights] {}: no {} and no {} in this directory{}", directory.string(), kSingle, kIndex,
                 pickled ? "; its pytorch_model.bin is a pickle, which could run code, so it is not read: convert it to safetensors" : "");
}

}  // namespace

Result<TensorSource> TensorSource::open(const std::string& path, TensorAccess access) {
  const fs::path given(path);
  std::error_code error;
  if (fs::is_directory(given, error)) return open_directory(given, access);
  if (path.ends_with(".index.json")) return open_index(given, access);

  std::array<uint8_t, 4> magic{};
  {
    REGARD_TRY(const File file, File::open(path));
    if (file.size() >= magic.size()) REGARD_CHECK(file.read_at(0, std::as_writable_bytes(std::span(magic))));
  }
  if (std::equal(magic.begin(), magic.end(), "GGUF") || path.ends_with(".gguf")) return open_gguf(given, access);
  REGARD_TRY(auto file, open_file(path, access));
  std::vector<std::unique_ptr<ByteSource>> files;
  files.push_back(std::move(file));
  return from_safetensors(std::move(files), {given.filename().string()});
}

}  // namespace regard
