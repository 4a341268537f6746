// Caches as bytes, for sessions that outlive a process. The bytes hold tokens, not memory: they do not depend on the
// kind of cache, its pages or the instruction set. What comes back is the same to the bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/kv_store.h"
#include "base/result.h"

namespace regard {

/// What save_kv() wrote, found to be whole.
struct SavedKv {
  KvGeometry geometry;
  int64_t begin = 0, size = 0;      ///< the tokens [begin, size) are there
  std::span<const uint8_t> tokens;  ///< for each token, for each head: see token_bytes()
};

/// The tokens of a cache behind a header: all numbers little-endian, 8 bytes "RegardKV"; u32 version (1), type (0:
/// f32), num_kv_heads, head_dim, value_dim, scale_block; u64 begin, size; u64 checksum of all that is not the checksum. Errors:
/// kResourceExhausted.
std::vector<uint8_t> save_kv(const KvStore& store);

/// Reads the header and checks the rest. The bytes are untrusted: kCorruptData for any that are not as save_kv() leaves
/// them, a single wrong bit included (a checksum that was forged with care cannot be told); kUnsupported for another
/// version. Takes no memory.
Result<SavedKv> read_saved_kv(std::span<const uint8_t> bytes);

/// Fills an empty store. Errors: as read_saved_kv(); kInvalidArgument when the store is not empty, has another geometry
/// or cannot begin where the tokens do; as KvStore::append.
void restore_kv(KvStore& store, std::span<const uint8_t> bytes);

}  // namespace regard
