// Any text is either refused or read as a mask that survives printing, planning and drawing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz/fuzz.h"
#include "mask/parse.h"
#include "mask/plan.h"
#include "regard/error.h"

namespace {

using regard::fuzz::demand;

regard::Bindings make_bindings() {
  const uint8_t bits[12] = {1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1};
  regard::Bindings bindings;
  bindings.lists.emplace("ids", regard::MaskList{0, 0, 1, 1, 0});
  bindings.lists.emplace("rows", regard::MaskList::per_row({{0, 1}, {1, 1, 1}}));
  bindings.tables.emplace(
      "seen", regard::BitTable::from_array(regard::Polarity::kKeep, regard::TensorView<const uint8_t>(bits, {3, 4})));
  return bindings;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const regard::Bindings bindings = make_bindings();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const regard::Result<regard::Mask> parsed = regard::parse_mask(text, bindings);
  if (!parsed) return 0;
  const regard::Mask& mask = *parsed;
  const regard::Result<regard::Mask> again = regard::parse_mask(mask.text(), bindings);
  demand(again && *again == mask && again->hash() == mask.hash());

  try {
    const regard::MaskPlan plan(mask, {}, 2, 2);
    for (int64_t q : {int64_t{0}, int64_t{3}, int64_t{1} << 62}) {
      const regard::Interval hull = plan.hull(1, 1, q);
      const regard::TileClass kind = plan.classify(1, 1, {q, q + 1}, {0, 64});
      uint64_t word = 0;
      plan.fill_words(1, 1, q, 0, 1, &word);
      demand(kind != regard::TileClass::kEmpty || word == 0);
      demand(kind != regard::TileClass::kFull || word == ~uint64_t{0});
      for (int64_t k = 0; k < 64; ++k) {
        const bool sees = (word >> k & 1) != 0;
        demand(sees == mask.allowed(1, 1, q, k));
        demand(!sees || (hull.begin <= k && k < hull.end));
      }
    }
  } catch (const regard::Error&) {
    // Lists for another batch, or masks for another number of heads: refused by name.
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  return {"full & ~none", "causal & (window(127, 0) | sinks(4))", "window(*, 3) | prefix(2)", "lengths(5, 0, 9)", "documents(0, 0, 1, 2)",
          "documents(0, 1; 1, 0, 0)", "blocks(3) & chunk(4) | dilated(2)", "tree(-1, 0, 0, 1)", "tree(2; -1, 0, 1)", "table(seen) & lengths(rows)",
          "per_head(causal, full)", "~(causal | documents(ids))", "((((full))))", "window(1,", "causal causal", "lengths(99999999999999999999)"};
}
