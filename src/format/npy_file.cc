// NumPy arrays in files: the public functions of include/regard/npy.h.
#include <cstring>

#include "base/checked.h"
#include "format/file_source.h"
#include "format/npy.h"
#include "format/tensor_info.h"
#include "runtime/atomic_file.h"

namespace regard {
namespace {

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

void save(const std::string& path, DType type, std::span<const int64_t> shape, std::span<const std::byte> values) {
  const auto count = checked_values({shape.begin(), shape.end()});
  const auto bytes = count ? checked_mul<int64_t>(*count, info(type).bytes) : count;
  if (!bytes || static_cast<uint64_t>(*bytes) != values.size()) {
    fail(Code::kInvalidArgument, "[save_npy] shape {} for {} values", shape_text({shape.begin(), shape.end()}),
         values.size() / static_cast<size_t>(info(type).bytes));
  }
  const std::string header = npy_header(type, shape);
  AtomicFile file = AtomicFile::create(path).value_or_throw();
  file.write(std::as_bytes(std::span(header))).value_or_throw();
  file.write(values).value_or_throw();
  file.commit().value_or_throw();
}

}  // namespace

NpyArray load_npy(const std::string& path) {
  const auto source = FileSource::open(path).value_or_throw();
  return read_npy(*source, file_name(path)).value_or_throw();
}

void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const float> values) {
  save(path, DType::kF32, shape, std::as_bytes(values));
}
void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const double> values) {
  save(path, DType::kF64, shape, std::as_bytes(values));
}
void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const int64_t> values) {
  save(path, DType::kI64, shape, std::as_bytes(values));
}
void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const int32_t> values) {
  save(path, DType::kI32, shape, std::as_bytes(values));
}
void save_npy_bool(const std::string& path, std::span<const int64_t> shape, std::span<const uint8_t> values) {
  std::vector<uint8_t> bits(values.size());
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = values[i] != 0;
  save(path, DType::kBool, shape, std::as_bytes(std::span<const uint8_t>(bits)));
}

}  // namespace regard
