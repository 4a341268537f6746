#include "regard/multi_head_attention_file.h"

#include <cstring>
#include <list>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/half.h"
#include "format/tensor_source.h"

namespace regard {

namespace {

constexpr std::string_view kName = "load_multi_head_attention";

std::vector<float> read_floats(const TensorSource& source, const TensorInfo& tensor) {
  if (tensor.type != DType::kF32 && tensor.type != DType::kF16 && tensor.type != DType::kBF16)
    fail(Code::kUnsupported, "[{}] tensor {} is of type {}; expected f32, f16 or bf16", kName, tensor.name,
         info(tensor.type).name);
  std::vector<uint8_t> bytes(static_cast<size_t>(tensor.bytes));
  source.read(tensor, bytes).value_or_throw();
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    if (tensor.type == DType::kF32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else {
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      values[i] = tensor.type == DType::kF16 ? half_to_float(half) : bf16_to_float(half);
    }
  }
  return values;
}

}  // namespace

MultiHeadAttention load_multi_head_attention(const std::string& path, std::string_view prefix, int64_t num_heads) {
  const TensorSource source = TensorSource::open(path).value_or_throw();
  MultiHeadAttention::Tensors tensors;
  std::list<std::vector<float>> values;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!tensor.name.starts_with(prefix)) continue;
    if (tensor.shape.empty() || tensor.shape.size() > TensorView<float>::kMaxRank)
      fail(Code::kUnsupported, "[{}] tensor {} has {} axes, expected 1 to 4", kName, tensor.name, tensor.shape.size());
    values.push_back(read_floats(source, tensor));
    TensorView<const float>& view = tensors[tensor.name];
    view.data = values.back().data();
    view.rank = static_cast<int>(tensor.shape.size());
    int64_t step = 1;
    for (size_t i = tensor.shape.size(); i-- > 0; step *= tensor.shape[i]) {
      view.shape[i] = tensor.shape[i];
      view.strides[i] = step;
    }
  }
  return MultiHeadAttention::from_torch(tensors, prefix, num_heads);
}

}  // namespace regard
