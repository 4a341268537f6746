// Proving what a mask promises: "no key after its query", "no empty row", "a implies b", and so on, for all lengths
// where that can be reasoned out, with the smallest counter-example where it is wrong.
//
//   Proof proof = prove(Mask::parse("causal & window(127, 0) | sinks(4)"), MaskProperty::parse("causal"));
//   // refuted: query 0 sees key 1, allowed by prefix(4)
//
// Start with prove(). explain() says for one pair which term let it through or held it back. docs/masks.md has a worked
// example.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/mask.h"
#include "regard/stop_token.h"

namespace regard {

/// How one axis is cut into parts, one per rank.
struct ShardCut {
  enum class Kind : uint8_t {
    kContiguous,  ///< `ranks` runs of ceil(length / ranks) positions
    kStriped,     ///< position p belongs to rank (p / stripe) mod ranks
    kRanges,      ///< rank i has the positions of ranges[i], which may overlap or leave gaps
  };
  Kind kind = Kind::kContiguous;
  int64_t ranks = 1;
  int64_t stripe = 1;
  std::vector<Interval> ranges;  ///< an end of kUnlimited has no end
};

/// Where each rank believes its part begins when it derives its mask.
enum class ShardPositions : uint8_t {
  kGlobal,  ///< at the positions in the whole sequence: right
  kLocal,   ///< every part is counted from 0 on: the classic mistake, here so that it can be refuted
};

/// What is claimed of a mask. q and k are positions; "sees" is the mask with its hard limits.
///
/// | text                      | claim                                                                              |
/// | ------------------------- | ---------------------------------------------------------------------------------- |
/// | `causal`                  | no query sees a key behind it (k > q)                                              |
/// | `window(l, r)`            | no query sees a key outside of q - l ... q + r                                     |
/// | `documents(...)`          | no query sees a key of another document, or one beyond the list                   |
/// | `lengths(n, ...)`         | no query of batch row b sees a key from n[b] on                                    |
/// | `implies:MASK`            | every pair that is seen is seen under MASK, too                                    |
/// | `equals:MASK`             | the same pairs are seen as under MASK                                              |
/// | `no-empty-row`            | every query sees a key                                                             |
/// | `reachable`               | every key is seen by a query                                                       |
/// | `decode-equals-prefill`   | for every step n, row n - 1 of the n x n mask is row n - 1 of the whole one. No    |
/// |                           | term looks at the number of keys, so it is broken exactly where a query sees a key |
/// |                           | that is not there yet: k > q                                                       |
/// | `ring(n)`, `ring(n, c)`   | a buffer that keeps key k in slot k mod n has not yet overwritten any key that a   |
/// |                           | query sees, where c queries (1 unless given) are computed together behind the last |
/// |                           | of their keys: no query sees a key below c floor(q / c) + c - n                    |
/// | `shards(Q; K)`            | the ranks of cut Q of the queries times those of cut K of the keys compute every   |
/// | `shards(Q; K; local)`     | visible pair exactly once and no other pair, each rank by the mask at the          |
/// |                           | positions of the whole sequence, or (local) counted from its own part's first      |
///
/// A cut is `contiguous(R)`, `striped(R)`, `striped(R, stripe)`, or ranges such as `0-511, 512-*`.
struct MaskProperty {
  enum class Kind : uint8_t {
    kCausal,
    kImplies,
    kEquals,
    kNoEmptyRow,
    kReachable,
    kDecodeEqualsPrefill,
    kRing,
    kShards,
  };
  Kind kind = Kind::kCausal;
  std::string text;          ///< as it was written
  std::optional<Mask> mask;  ///< kImplies and kEquals: the other side; also window, documents and lengths
  int64_t size = 0;          ///< kRing: slots
  int64_t chunk = 1;         ///< kRing: queries that are computed together
  ShardCut q_cut, k_cut;     ///< kShards
  ShardPositions positions = ShardPositions::kGlobal;

  /// Reads the text form; names in masks are those of `bindings`. Errors: kInvalidArgument, saying what was expected.
  static REGARD_API MaskProperty parse(std::string_view text, const Bindings& bindings = {});
};

/// Over which pairs a claim is checked. Keys begin at position 0.
///
/// With neither length: for all lengths n, as n queries and n keys from position 0 on. A mask with a list or table that
/// ends (documents, tree, table) speaks for the extent of its shortest one alone. A length that is not given is the
/// other one. All batch rows and heads that the mask tells apart are looked at unless their numbers are given.
struct ProofBounds {
  std::optional<int64_t> q_len, kv_len;
  std::optional<int64_t> q_begin;  ///< position of the first query; as for resolve_placement()
  std::optional<int64_t> batch, num_q_heads;
  MaskLimits limits;              ///< ANDed with the mask, as everywhere
  int64_t max_work = 20'000'000;  ///< steps of reasoning before the answer is "not decided": a second or two
  const StopToken* stop = nullptr;
};

enum class Verdict : uint8_t { kProved, kRefuted, kNotDecided };

/// "proved", "refuted", "not decided".
REGARD_API std::string_view verdict_name(Verdict verdict) noexcept;

/// Where a claim fails. The smallest one: first in q, then k, then batch row, then head (`reachable` first in k).
struct CounterExample {
  int64_t batch = 0;
  int64_t head = 0;
  std::optional<int64_t> q;  ///< nothing for `reachable`
  std::optional<int64_t> k;  ///< nothing for `no-empty-row`
  std::string expected;      ///< "hidden"
  std::string found;         ///< "visible"
  std::string because;       ///< the terms that allowed or forbade it: "allowed by prefix(4)"
};

struct Proof {
  Verdict verdict = Verdict::kNotDecided;
  std::string property;                           ///< the text of the property
  std::string scope;                              ///< "all lengths", "512 queries from position 0 and 512 keys", ...
  std::string method;                             ///< how it was decided
  std::string reason;                             ///< kNotDecided: why
  std::optional<CounterExample> counter_example;  ///< kRefuted
};

/// Decides whether `mask` keeps the promise. Terms without lists (full, none, causal, window, prefix, lengths, blocks,
/// chunk, dilated) are reasoned about by cases over the order of positions, blocks and residues, so that neither
/// lengths nor constants need to be small; terms with lists are read row by row, as runs of keys where they are runs.
/// A verdict is never a guess: what takes more than `max_work` steps is not decided, and says so.
/// Errors: kInvalidArgument when the mask, the property and the bounds do not fit each other, naming the term;
/// kCancelled.
REGARD_API Proof prove(const Mask& mask, const MaskProperty& property, const ProofBounds& bounds = {});

/// An expression with its answer for one pair, node by node.
struct MaskExplanation {
  std::string text;  ///< the node as text
  bool sees = false;
  std::vector<MaskExplanation> parts;  ///< the operands; of per_head the one of this head
};
REGARD_API MaskExplanation explain(const Mask& mask, int64_t batch, int64_t head, int64_t q, int64_t k);

/// The terms that decide the pair, in words: "allowed by causal and prefix(4)", "forbidden by window(3, 0)". Of several
/// that would do on their own, the first as written.
REGARD_API std::string explain_decision(const Mask& mask, int64_t batch, int64_t head, int64_t q, int64_t k);

}  // namespace regard
