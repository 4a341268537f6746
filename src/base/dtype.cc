#include "regard/dtype.h"

#include "base/half.h"

namespace regard {

DTypeInfo info(DType type) noexcept {
  switch (type) {
    case DType::kF32: return {"f32", 4, 1};
    case DType::kF16: return {"f16", 2, 1};
    case DType::kBF16: return {"bf16", 2, 1};
    case DType::kF64: return {"f64", 8, 1};
    case DType::kQ8_0: return {"q8_0", 34, 32};
    case DType::kQ4_0: return {"q4_0", 18, 32};
    case DType::kQ4_1: return {"q4_1", 20, 32};
    case DType::kQ5_0: return {"q5_0", 22, 32};
    case DType::kQ5_1: return {"q5_1", 24, 32};
    case DType::kQ4_K: return {"q4_k", 144, 256};
    case DType::kQ5_K: return {"q5_k", 176, 256};
    case DType::kQ6_K: return {"q6_k", 210, 256};
    case DType::kI8: return {"i8", 1, 1};
    case DType::kI16: return {"i16", 2, 1};
    case DType::kI32: return {"i32", 4, 1};
    case DType::kI64: return {"i64", 8, 1};
    case DType::kU8: return {"u8", 1, 1};
    case DType::kU16: return {"u16", 2, 1};
    case DType::kU32: return {"u32", 4, 1};
    case DType::kU64: return {"u64", 8, 1};
    case DType::kBool: return {"bool", 1, 1};
  }
  return {"unknown", 0, 1};
}

float rounded(float value, DType type) noexcept {
  if (type == DType::kF16) return half_to_float(float_to_half(value));
  if (type == DType::kBF16) return bf16_to_float(float_to_bf16(value));
  return value;
}

bool is_weight_type(DType type) noexcept {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || (type >= DType::kQ8_0 && type <= DType::kQ6_K);
}

}  // namespace regard
