// The expression tree behind class Mask: one immutable node per term or operator. Everything that walks masks
// (printing, planning, single questions) does so over MaskNode.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/mask.h"

namespace regard {

enum class MaskOp : uint8_t {
  kFull,
  kNone,
  kCausal,
  kWindow,
  kPrefix,
  kLengths,
  kDocuments,
  kBlocks,
  kChunk,
  kDilated,
  kTree,
  kTable,
  kPerHead,
  kNot,
  kAnd,
  kOr,
};

struct MaskNode {
  MaskOp op = MaskOp::kFull;
  int64_t a = 0;                                          // window: left; blocks, chunk, dilated: n
  int64_t b = 0;                                          // window: right
  bool shared_ids = false;                                // documents: one list serves queries and keys
  MaskList first;                                         // prefix, lengths: n; documents: query ids; tree: base
  MaskList second;                                        // documents: key ids; tree: parents
  std::optional<BitTable> bits;                           // table
  std::string name;                                       // table
  std::vector<std::shared_ptr<const MaskNode>> children;  // per_head, ~, &, |

  // Worked out by finish() from the fields above.
  int depth = 1;
  int64_t nodes = 1;
  uint64_t hash = 0;
  bool depends_on_batch = false;
  bool depends_on_head = false;
  bool compares_positions = false;
  // The names used below and here, sorted, each once; the pointers lead into the tree itself.
  struct Bound {
    std::string_view name;
    const MaskList* list = nullptr;
    const BitTable* table = nullptr;
  };
  std::vector<Bound> bound;

  // Checks the limits, fills the second half and wraps the node. Throws Error.
  static Mask finish(MaskNode node);
  static const std::shared_ptr<const MaskNode>& of(const Mask& mask) { return mask.node_; }
  static Mask mask(std::shared_ptr<const MaskNode> node) { return Mask(std::move(node)); }
};

bool same(const MaskNode& a, const MaskNode& b) noexcept;

/// True for a letter or '_' followed by letters, digits and '_'.
bool is_mask_name(std::string_view name) noexcept;

/// The operands under one & or |, those of the same kind opened up into it. At least one operand.
Mask join_masks(MaskOp op, const std::vector<Mask>& operands);

/// The name of a term or operator in the text form: "causal", "per_head", "&".
std::string_view mask_op_name(MaskOp op) noexcept;

/// How errors call a term: its name, with the names of the arrays it uses, for example documents(ids).
std::string term_label(const MaskNode& node);

/// Whether the parents of every row form a forest. Returns the complaint, or nothing.
std::optional<std::string> tree_fault(const MaskList& parents);

/// How often a pair of this thread was decided one by one or as a bit of a word; classification, hulls and closed-form
/// counts leave it alone. For tests.
inline thread_local uint64_t mask_pair_evaluations = 0;

/// a + b held within the int64 range.
constexpr int64_t saturating_add(int64_t a, int64_t b) noexcept {
  int64_t sum{};
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

}  // namespace regard
