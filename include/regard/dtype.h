// Element types of tensors: plain numbers, and the block formats that GGUF files store weights in.
#pragma once

#include <cstdint>
#include <string_view>

#include "regard/export.h"

namespace regard {

enum class DType : uint8_t {
  kF32, kF16, kBF16, kF64,
  kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K,
  kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kBool,
};

/// How a type is stored: `bytes` hold `values` consecutive elements (1 for plain types, 32 or 256 for block formats).
struct DTypeInfo {
  std::string_view name;
  int bytes;
  int values;
};

REGARD_API DTypeInfo info(DType type) noexcept;

/// The number of a plain floating-point type (F16, BF16; F32 and F64 hold every float) that is nearest to `value`, ties to
/// even, and infinity beyond the largest one. Other types leave it as it is.
REGARD_API float rounded(float value, DType type) noexcept;

/// True for the types that a weight matrix may have: F32, F16, BF16 and the block formats.
REGARD_API bool is_weight_type(DType type) noexcept;

}  // namespace regard
