// Saved caches from untrusted bytes: they come back whole or not at all, in any kind of cache.
#include <cstring>

#include "attention/kv_save.h"
#include "attention/paged_kv_cache.h"
#include "attention/ring_kv_cache.h"
#include "fuzz/fuzz.h"
#include "regard/error.h"

using namespace regard;

namespace {

constexpr KvGeometry kGeometry{.num_kv_heads = 2, .head_dim = 3, .value_dim = 2};

template <class Cache>
void restore_into(Cache cache, std::span<const uint8_t> bytes, bool whole) {
  try {
    restore_kv(cache, bytes);
  } catch (const Error&) {
    fuzz::demand(cache.size() == cache.begin());
    return;
  }
  fuzz::demand(whole);
  const std::vector<uint8_t> again = save_kv(cache);
  fuzz::demand(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), bytes.size()) == 0);
}

std::string saved(int tokens) {
  KvCache cache({.geometry = kGeometry});
  const std::vector<float> rows(static_cast<size_t>(tokens) * 6, 0.5f);
  cache.append({.k = rows.data(),
                .k_token_stride = 6,
                .k_head_stride = 3,
                .v = rows.data(),
                .v_token_stride = 4,
                .v_head_stride = 2},
               tokens);
  const std::vector<uint8_t> bytes = save_kv(cache);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(data, size);
  const auto read = read_saved_kv(bytes);
  if (read) fuzz::demand(read->tokens.size() <= size && read->begin <= read->size);
  const bool whole = static_cast<bool>(read);
  // Little memory is enough for what a fuzz input can hold; a promise of more must be refused.
  const auto budget = std::make_shared<KvBudget>(int64_t{1} << 24);
  restore_into(KvCache({.geometry = kGeometry, .budget = budget}), bytes, whole);
  restore_into(PagedKvCache(std::make_shared<PagePool>(
                   PagePoolOptions{.geometry = kGeometry, .page_keys = 16, .budget = budget})),
               bytes, whole);
  restore_into(RingKvCache({.geometry = kGeometry, .mask = Mask::window(100, 0), .capacity = 256, .budget = budget}),
               bytes, whole);
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> all = {saved(0), saved(1), saved(3), saved(70)};
  all.push_back(all[2].substr(0, 60));
  return all;
}
