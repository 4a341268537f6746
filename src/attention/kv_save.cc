#include "attention/kv_save.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

static_assert(std::endian::native == std::endian::little, "numbers are written by copying their bytes");

namespace {

constexpr std::array<char, 8> kMagic = {'R', 'e', 'g', 'a', 'r', 'd', 'K', 'V'};
constexpr uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic;
  uint32_t version, type, num_kv_heads, head_dim, value_dim, scale_block;
  uint64_t begin, size;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 56 && std::has_unique_object_representations_v<Header>);

// The types in the order of their numbers in a file.
constexpr std::array<DType, 4> kTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8};

// Each step maps the running sum one to one for a given word, so no two texts that differ in one word have the same
// sum.
uint64_t mix(uint64_t sum, std::span<const uint8_t> bytes) noexcept {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  while (!bytes.empty()) {
    const size_t n = std::min<size_t>(bytes.size(), sizeof(uint64_t));
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), n);
    sum = (sum ^ word) * kOdd;
    sum ^= sum >> 29;
    bytes = bytes.subspan(n);
  }
  return sum;
}

uint64_t checksum(Header header, std::span<const uint8_t> tokens) noexcept {
  header.checksum = tokens.size();
  const uint64_t sum = mix(0, {reinterpret_cast<const uint8_t*>(&header), sizeof header});
  return mix(sum, tokens);
}

// What must be the same in a cache and in what was saved of another, but for the scales, of which more is said.
bool same_numbers(const KvGeometry& a, const KvGeometry& b) {
  return a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim && a.value_dim == b.value_dim && a.type == b.type;
}

}  // namespace

std::vector<uint8_t> save_kv(const KvStore& store) {
  const KvView view = store.view();
  const KvGeometry& g = view.geometry;
  Header header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.type = static_cast<uint32_t>(std::find(kTypes.begin(), kTypes.end(), g.type) - kTypes.begin());
  header.num_kv_heads = static_cast<uint32_t>(g.num_kv_heads);
  header.head_dim = static_cast<uint32_t>(g.head_dim);
  header.value_dim = static_cast<uint32_t>(g.value_dim);
  header.scale_block = static_cast<uint32_t>(g.scale_block);
  header.begin = static_cast<uint64_t>(store.begin());
  header.size = static_cast<uint64_t>(store.size());
  const int64_t tokens = store.size() - store.begin(), each = token_bytes(g);
  std::vector<uint8_t> bytes(sizeof header + static_cast<size_t>(tokens * g.num_kv_heads * each));
  uint8_t* to = bytes.data() + sizeof header;
  for (int64_t p = store.begin(); p < store.size(); ++p)
    for (int h = 0; h < g.num_kv_heads; ++h, to += each) read_token(g, view.run_of(p, h), view.column_of(p), to);
  header.checksum = checksum(header, std::span(bytes).subspan(sizeof header));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Result<SavedKv> read_saved_kv(std::span<const uint8_t> bytes) {
  Header header;
  if (bytes.size() < sizeof header)
    return corrupt("a saved cache has a header of {} bytes, and {} are there", sizeof header, bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) return corrupt("this is no saved cache: it does not begin with \"RegardKV\"");
  if (header.version != kVersion)
    return failure(Code::kUnsupported, "a saved cache of version {}; version {} is read", header.version, kVersion);
  if (header.type >= kTypes.size()) return corrupt("the type of a saved cache is {}", header.type);
  if (!kernels::is_scale_block(header.scale_block) ||
      (header.scale_block != 0 && !kernels::has_scales(kTypes[header.type])))
    return corrupt("the scales of a saved cache of {} belong to {} numbers", info(kTypes[header.type]).name,
                   header.scale_block);
  constexpr uint32_t kMaxHeads = 1 << 20, kMaxDim = kernels::kMaxHeadDim;
  if (header.num_kv_heads < 1 || header.num_kv_heads > kMaxHeads || header.head_dim < 1 || header.head_dim > kMaxDim ||
      header.value_dim < 1 || header.value_dim > kMaxDim)
    return corrupt("a saved cache of {} heads with head_dim {} and value_dim {}", header.num_kv_heads, header.head_dim,
                   header.value_dim);
  if (header.begin > header.size || header.size > static_cast<uint64_t>(kMaxCacheTokens))
    return corrupt("a saved cache of tokens {} to {}", header.begin, header.size);
  SavedKv saved;
  saved.geometry = {.num_kv_heads = static_cast<int>(header.num_kv_heads),
                    .head_dim = static_cast<int>(header.head_dim),
                    .value_dim = static_cast<int>(header.value_dim),
                    .type = kTypes[header.type],
                    .scale_block = static_cast<int>(header.scale_block)};
  saved.begin = static_cast<int64_t>(header.begin);
  saved.size = static_cast<int64_t>(header.size);
  saved.tokens = bytes.subspan(sizeof header);
  const int64_t each = saved.geometry.num_kv_heads * token_bytes(saved.geometry);
  const auto wanted = checked_mul<uint64_t>(header.size - header.begin, static_cast<uint64_t>(each));
  if (!wanted || *wanted != saved.tokens.size())
    return corrupt("a saved cache of {} tokens with {} bytes for each has {} bytes of them", header.size - header.begin,
                   each, saved.tokens.size());
  if (checksum(header, saved.tokens) != header.checksum) return corrupt("the checksum of a saved cache does not match");
  return saved;
}

void restore_kv(KvStore& store, std::span<const uint8_t> bytes) {
  Result<SavedKv> result = read_saved_kv(bytes);
  if (!result) fail(result.failure().code, "[restore] {}", result.failure().message);
  const SavedKv& saved = *result;
  const KvGeometry &g = store.geometry(), &s = saved.geometry;
  require(
      same_numbers(g, s),
      "[restore] {} heads with head_dim {} and value_dim {} in {} were saved, the cache has {} with {} and {} in {}",
      s.num_kv_heads, s.head_dim, s.value_dim, info(s.type).name, g.num_kv_heads, g.head_dim, g.value_dim,
      info(g.type).name);
  require(g.scale_block == s.scale_block, "[restore] a cache with a scale_block of {} was saved, the cache has one of {}",
          s.scale_block, g.scale_block);
  store.begin_at(saved.begin, saved.size);
  const uint8_t* from = saved.tokens.data();
  const int64_t each = token_bytes(g);
  try {
    store.extend(saved.size - saved.begin);
  } catch (...) {
    store.begin_at(0, 0);
    throw;
  }
  for (int64_t p = saved.begin; p < saved.size; ++p)
    for (int h = 0; h < g.num_kv_heads; ++h, from += each) {
      const KvSlots to = store.slots(p, h);
      write_token(g, from, to.run, to.column);
    }
}

}  // namespace regard
