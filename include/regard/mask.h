// Masks: a rule about positions that says which query may look at which key.
//
// A Mask is a small immutable expression over absolute positions: does the query at position p see the key at position
// k, in this batch row and query head? Terms are combined with ~, & and | (tightest first). `true` always means "may
// look"; a mask is never a number and never enters arithmetic.
//
//   Mask mask = Mask::causal() & (Mask::window(127, 0) | Mask::prefix(4));
//   Mask same = Mask::parse("causal & (window(127, 0) | sinks(4))");   // mask == same
//
// Start with class Mask below; docs/masks.md explains every term with a picture. What a mask amounts to over given
// lengths (counts, rows, columns, pictures) is in regard/mask_view.h.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

/// Where the first query and the first key of a call stand: query i has position q_begin + i, key j has k_begin + j.
struct Placement {
  int64_t q_begin = 0;
  int64_t k_begin = 0;
};

/// Positions begin, begin + 1, ..., end - 1.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const noexcept { return begin >= end; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// The width of a window that has no end on this side; written `*` in text.
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// Limits that hold for every expression, whether built with operators or read from text.
inline constexpr int kMaxMaskDepth = 64;             ///< levels of nesting
inline constexpr int64_t kMaxMaskNodes = 10'000;     ///< terms and operators together
inline constexpr size_t kMaxMaskText = 1024 * 1024;  ///< bytes of text

/// Whole numbers given to a term: one list that serves all batch rows, or one list per batch row (rows may differ in
/// length). A list that has a name prints as that name and is found again by it; equality looks at the numbers alone.
/// Copies share their numbers.
class REGARD_API MaskList {
 public:
  MaskList() : MaskList(std::vector<int64_t>{}) {}
  /// One list for all batch rows.
  MaskList(std::vector<int64_t> values);
  MaskList(std::initializer_list<int64_t> values) : MaskList(std::vector<int64_t>(values)) {}
  /// One list per batch row. Errors: kInvalidArgument when there is no row.
  static MaskList per_row(const std::vector<std::vector<int64_t>>& rows);
  /// `values` [rows, columns] in C order, one list per batch row; no shape or sizes that do not match are errors.
  static MaskList per_row(std::vector<int64_t> values, int64_t rows, int64_t columns);

  /// The same numbers under a name. Errors: kInvalidArgument unless the name is a letter or '_' followed by letters,
  /// digits and '_'.
  MaskList named(std::string name) const;

  const std::string& name() const noexcept { return name_; }
  int64_t rows() const noexcept { return static_cast<int64_t>(data_->offsets.size()) - 1; }
  /// The length and the numbers of row `r`.
  int64_t size(int64_t r = 0) const noexcept;
  const int64_t* row(int64_t r = 0) const noexcept;
  /// The row that serves batch row `b`.
  int64_t row_of(int64_t b) const noexcept { return rows() == 1 ? 0 : b; }
  uint64_t hash() const noexcept { return data_->hash; }
  friend REGARD_API bool operator==(const MaskList& a, const MaskList& b) noexcept;

 private:
  struct Data {
    std::vector<int64_t> values;
    std::vector<int64_t> offsets;  // row r is values[offsets[r]], ..., values[offsets[r + 1] - 1]
    uint64_t hash = 0;
  };
  explicit MaskList(Data data);

  std::string name_;
  std::shared_ptr<const Data> data_;
};

/// Whether `true` in a foreign boolean array means that the pair is kept or that it is dropped. Libraries disagree,
/// some within themselves, so it is never guessed.
enum class Polarity : uint8_t { kKeep, kDrop };

/// Bits for each (batch row, query head, query position, key position); a batch or head axis of extent 1 serves all.
/// Copies share their bits.
class REGARD_API BitTable {
 public:
  /// Which extents an array must have; -1 does not ask. A batch or head extent of 1 always passes.
  struct Expected {
    int64_t batch = -1, heads = -1, q = -1, k = -1;
  };

  /// From `values` [batch|1, heads|1, q, k] (or [q, k], or [heads|1, q, k]), any strides. bool arrays and bytes (0 or
  /// 1; anything else is an error) are taken; there is no overload for floats: an array of numbers is a bias, not a
  /// mask. Errors: kInvalidArgument, naming both shapes, when `expected` asks for another shape; kResourceExhausted.
  static BitTable from_array(Polarity polarity, TensorView<const bool> values, Expected expected);
  static BitTable from_array(Polarity polarity, TensorView<const uint8_t> values, Expected expected);
  static BitTable from_array(Polarity polarity, TensorView<const bool> values) {
    return from_array(polarity, values, Expected{});
  }
  static BitTable from_array(Polarity polarity, TensorView<const uint8_t> values) {
    return from_array(polarity, values, Expected{});
  }

  int64_t batch() const noexcept { return data_->batch; }
  int64_t heads() const noexcept { return data_->heads; }
  int64_t q_len() const noexcept { return data_->q_len; }
  int64_t kv_len() const noexcept { return data_->kv_len; }
  int64_t words_per_row() const noexcept { return data_->words_per_row; }
  /// The words of one query row: bit j of word w belongs to key 64 w + j; bits beyond kv_len are 0.
  const uint64_t* row(int64_t b, int64_t h, int64_t q) const noexcept;
  uint64_t hash() const noexcept { return data_->hash; }
  friend REGARD_API bool operator==(const BitTable& a, const BitTable& b) noexcept;

 private:
  struct Data {
    int64_t batch = 0, heads = 0, q_len = 0, kv_len = 0, words_per_row = 0;
    std::vector<uint64_t> words;
    uint64_t hash = 0;
  };
  template <class T>
  static BitTable build(Polarity polarity, TensorView<const T> values, const Expected& expected);
  explicit BitTable(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;
};

/// The arrays that names in the text of a mask stand for.
struct Bindings {
  std::map<std::string, MaskList, std::less<>> lists;
  std::map<std::string, BitTable, std::less<>> tables;
};

struct MaskNode;

/// The rule itself: an immutable expression, cheap to copy, safe to share between threads. Building one checks its
/// numbers and the limits above (Errors: kInvalidArgument, kResourceExhausted).
///
/// Equality is structural: two expressions are equal when they have the same shape and the same numbers, with nested &
/// or nested | of one kind counted as one level, so (a & b) & c equals a & (b & c) but a & b does not equal b & a.
/// Lists and tables count by content, not by name.
class REGARD_API Mask {
 public:
  /// The mask that lets every query see every key, same as full().
  Mask();

  static Mask full();
  static Mask none();
  /// k <= p. Row p sees p + 1 keys.
  static Mask causal();
  /// p - left <= k <= p + right: `left` keys before, the key itself, `right` keys after. "A window of W keys including
  /// the own one, looking back" is window(W - 1, 0). kUnlimited leaves a side open; negative widths are errors.
  static Mask window(int64_t left, int64_t right);
  /// k < n, the same for all batch rows or one number per batch row. Row p sees n keys.
  static Mask prefix(int64_t n);
  static Mask prefix(MaskList n);
  /// k < n[batch row]: keys beyond the length of the row's sequence are not seen.
  static Mask lengths(MaskList n);
  /// ids[p] = ids[k]: a query sees the keys of its own document. One list for queries and keys, or one for each.
  static Mask documents(MaskList ids);
  static Mask documents(MaskList q_ids, MaskList k_ids);
  /// k / n <= p / n: the own block of n keys whole, and all earlier ones.
  static Mask blocks(int64_t n);
  /// k / n = p / n: the own block of n keys only.
  static Mask chunk(int64_t n);
  /// (p - k) mod n = 0: every n-th key, counted from the query, in both directions.
  static Mask dilated(int64_t n);
  /// k < base, or k is p or an ancestor of p. Node i stands at position base + i and parents[i] is the node it hangs
  /// from, -1 for a root. Errors: kInvalidArgument for a parent that is no node, or a node that is its own ancestor.
  static Mask tree(MaskList parents);
  static Mask tree(MaskList base, MaskList parents);
  /// The bit at [batch row, head, p, k]. The table prints as `name`.
  static Mask table(std::string name, BitTable bits);
  /// The i-th mask for query head i. The number of masks must be the number of query heads where the mask is used.
  static Mask per_head(std::vector<Mask> masks);
  /// A foreign boolean array as a mask: table(name, BitTable::from_array(polarity, values)).
  static Mask from_array(Polarity polarity, TensorView<const bool> values, std::string name = "array");
  static Mask from_array(Polarity polarity, TensorView<const uint8_t> values, std::string name = "array");

  Mask operator~() const;
  friend REGARD_API Mask operator&(const Mask& a, const Mask& b);
  friend REGARD_API Mask operator|(const Mask& a, const Mask& b);
  Mask& operator&=(const Mask& other) { return *this = *this & other; }
  Mask& operator|=(const Mask& other) { return *this = *this | other; }

  /// Reads the text form (grammar in docs/masks.md). Errors: kInvalidArgument with the column, what was found, what was
  /// expected, and the line with a caret; kResourceExhausted when a limit is passed.
  static Mask parse(std::string_view text, const Bindings& bindings = {});
  /// The text form: Mask::parse(mask.text(), mask.bindings()) == mask.
  std::string text() const;
  /// The named lists and tables that the expression uses.
  Bindings bindings() const;

  /// Whether the query at position q of query head `head` sees the key at position k. Negative positions (slots that
  /// were never written) see nothing and are not seen; beyond the end of a list its term is false. Meant for tests and
  /// single questions: a MaskView answers whole rows. Errors: kInvalidArgument when `batch` or `head` has no list,
  /// table or mask.
  bool allowed(int64_t batch, int64_t head, int64_t q, int64_t k) const;

  /// Whether the answer may differ between batch rows, or between heads.
  bool depends_on_batch() const noexcept;
  bool depends_on_head() const noexcept;
  /// Whether some term sets p against k, so that it matters where the queries stand among the keys: causal, window,
  /// blocks, chunk, dilated, tree, and documents with one list for both. (A table and documents with two lists have
  /// their own query axis; prefix and lengths look at k alone.)
  bool compares_positions() const noexcept;

  uint64_t hash() const noexcept;
  friend REGARD_API bool operator==(const Mask& a, const Mask& b) noexcept;

  /// The expression tree, for the parts of this library that walk it (src/mask/node.h).
  const MaskNode& node() const noexcept { return *node_; }

 private:
  friend struct MaskNode;
  explicit Mask(std::shared_ptr<const MaskNode> node) : node_(std::move(node)) {}

  std::shared_ptr<const MaskNode> node_;
};

/// Where the queries of a call stand: `placement` when it is stated. When it is not, both begin at 0, and that is
/// accepted only when q_len = kv_len or the mask does not compare positions: which corner of the square a causal mask
/// means is never guessed. Errors: kInvalidArgument, naming the term.
REGARD_API Placement resolve_placement(const Mask& mask, const std::optional<Placement>& placement, int64_t q_len,
                                       int64_t kv_len);

/// Documents as a hard limit: ids of the queries and of the keys by position, as in Mask::documents.
struct DocumentLimit {
  MaskList q_ids;
  MaskList k_ids;
};

/// What holds besides the expression and is always ANDed with its result, whatever the expression says.
struct MaskLimits {
  /// One number per batch row (or one for all, or none: no limit). A key is seen only if its position is below it.
  std::vector<int64_t> key_lengths;
  std::optional<DocumentLimit> documents;
};

}  // namespace regard

template <>
struct std::hash<regard::Mask> {
  size_t operator()(const regard::Mask& mask) const noexcept { return static_cast<size_t>(mask.hash()); }
};
