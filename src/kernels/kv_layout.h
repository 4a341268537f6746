// How cached keys and values are stored, 64 positions of one head at a time: what attention/kv_block.cc writes and the
// kernels read.
//
//   [keys: head_dim rows of 64]  [values: 64 rows of stored_dim]  [scales of the keys]  [scales of the values]
//
// Where several blocks lie together, the keys of all come first, and so on (attention/kv_view.h); kernels are told where each
// part is. Numbers are f32, f16 or bf16, or codes of a byte with a scale (f32): number = code * scale. The scales are there for codes
// only. A token's key has one, or one for each block of its numbers, and its value likewise: [blocks][64] of the keys, [64]
// [blocks] of the values. In rows of bf16 number c and number c + 16 of 32 share a dword, the first in its low half,
// so that one load, one shift and one `and` give two vectors.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "regard/dtype.h"

namespace regard::kernels {

constexpr bool is_cache_type(DType type) noexcept {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || type == DType::kI8;
}
/// Whether numbers are codes with a scale.
constexpr bool has_scales(DType type) noexcept { return type == DType::kI8; }

/// Whether so many numbers may share a scale: a whole row (0), or a block of it.
constexpr bool is_scale_block(int64_t numbers) noexcept {
  return numbers == 0 || (numbers >= kLanes && numbers <= kMaxHeadDim && (numbers & (numbers - 1)) == 0);
}
/// How many scales a row of `dim` numbers has.
constexpr int scale_blocks(int scale_block, int dim) noexcept {
  return scale_block == 0 || dim <= scale_block ? 1 : (dim + scale_block - 1) / scale_block;
}

constexpr int cache_bytes(DType type) noexcept { return type == DType::kF32 ? 4 : type == DType::kI8 ? 1 : 2; }

/// The numbers in a row of values: whole vectors, and whole pairs of them for bf16.
constexpr int stored_dim(DType type, int value_dim) noexcept {
  const int whole = type == DType::kBF16 ? 2 * kLanes : kLanes;
  return (value_dim + whole - 1) / whole * whole;
}

/// Where number c of a row stands in it.
constexpr int stored_at(DType type, int c) noexcept {
  return type == DType::kBF16 ? (c & ~31) + 2 * (c & 15) + ((c >> 4) & 1) : c;
}

}  // namespace regard::kernels
