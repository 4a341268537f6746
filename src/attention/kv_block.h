// Writing and reading single tokens of one head, whatever type numbers are stored in: columns of a run, 64 of them in each
// of its blocks. Start with write_block().
#pragma once

#include <cstdint>

#include "attention/kv_view.h"

namespace regard {

/// Writes `count` tokens, from rows.token `token` on, into the slots `column` ... of one block of a run.
///
/// f16 and bf16 round to nearest even; what is too large for f16 becomes infinite. i8 stores round(x / scale) with
/// scale = max|x| / 127 over the token's key (or value) of this head, or over each block of scale_block numbers of it, so
/// that a number is off by half a scale at most; a key, value or block that holds a NaN or an infinity is NaN as a whole.
void write_block(const KvGeometry& geometry, const KvRows& rows, int64_t token, int count, int kv_head,
                 std::byte* run, int column) noexcept;

/// Copies `count` tokens from one block to another. Geometries differ in their runs alone.
void copy_slots(const KvGeometry& from_geometry, const std::byte* from, int from_column, const KvGeometry& to_geometry,
                std::byte* to, int to_column, int count) noexcept;

/// Fills the slots of `count` tokens with NaN, as if they had never been written.
void clear_slots(const KvGeometry& geometry, std::byte* run, int column, int count) noexcept;

/// Bytes of one token of one head: key, value (without padding), and where there are any the scales of the key and those of
/// the value.
int64_t token_bytes(const KvGeometry& geometry) noexcept;
/// One token of one head as those bytes, and back.
void read_token(const KvGeometry& geometry, const std::byte* run, int column, uint8_t* to) noexcept;
void write_token(const KvGeometry& geometry, const uint8_t* from, std::byte* run, int column) noexcept;

}  // namespace regard
