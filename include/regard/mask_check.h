// Looking at a mask that came as an array from elsewhere: which expression of the algebra it is, and which of the
// classic mistakes it makes.
//
// Start with check_mask_array().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/dtype.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/stop_token.h"

namespace regard {

/// An expression that sees exactly the pairs of a table.
struct RecognisedMask {
  Mask mask;
  int64_t q_begin = 0;  ///< position of the first query under which it does
};

/// Finds the expression: full, none, causal at any offset, window, prefix, lengths, documents, blocks, chunk, dilated,
/// the complement of one of them, or & or | of two. For each of these terms the tightest one around the visible pairs,
/// or the largest one inside them, is read off the table and the combination compared with it, so what is returned is
/// equal on every pair; nothing is returned where none is. Without `q_begin`, queries begin at 0 when there are as
/// many as keys, else also where the diagonal suggests. Keys begin at 0. Cost: a few passes over the words and runs of
/// the table: well below a second for 4096 x 4096. Errors: kCancelled.
REGARD_API std::optional<RecognisedMask> recognise_mask(const BitTable& table, std::optional<int64_t> q_begin = {},
                                                        const StopToken* stop = nullptr);

/// An array in C order: a boolean mask, or numbers that are added to scores.
struct MaskArray {
  DType type = DType::kBool;   ///< kBool, an integer, kF16, kF32 or kF64
  std::vector<int64_t> shape;  ///< [q, k], [heads|1, q, k] or [batch|1, heads|1, q, k]; an axis of 1 serves all
  const void* data = nullptr;
};

/// What the array is meant to be; whatever is not given is not checked.
struct MaskCheck {
  std::optional<Polarity> polarity;  ///< of truth values; without it true keeps
  std::optional<Mask> expected;      ///< what the array should say
  std::optional<int64_t> batch, num_q_heads, q_len, kv_len;
  std::optional<int64_t> q_begin;  ///< position of the first query
  const StopToken* stop = nullptr;
};

/// A mistake. Its names:
///
/// | name                   | what is wrong                                                                  |
/// | ---------------------- | ------------------------------------------------------------------------------ |
/// | `zero-and-one`         | floats 0 and 1: meant as truth values, but as numbers added to scores they hide nothing |
/// | `hides-nothing`        | a mask of numbers that are all 0                                               |
/// | `finite-minimum`       | a large negative number instead of -inf                                        |
/// | `half-minimum`         | the same in f16, where two of them, or one and a score, are -inf               |
/// | `not-a-number`         | NaN or +inf                                                                    |
/// | `bias`                 | other numbers: a bias, which is no mask                                        |
/// | `integer-type`         | integers, which one library reads as truth values and the next one adds        |
/// | `shape`                | the shape does not fit the lengths                                             |
/// | `swapped-axes`         | it would fit with two axes swapped                                             |
/// | `batch-axis`           | three axes are [heads, q, k]; the first one is the batch here                  |
/// | `padding-shape`        | [batch, kv_len], which would be read as [q, k]                                 |
/// | `polarity`             | true and false, or 0 and -inf, the wrong way round                             |
/// | `corner`               | causal from the top left corner where the queries are the last ones, or the reverse |
/// | `causal-on-cross`      | `causal` besides what was expected, between sequences of different length      |
/// | `extra-causal`         | the same for equal lengths                                                     |
/// | `or-for-and`, `and-for-or` | joined the wrong way                                                       |
/// | `window-count`         | a window that is one key too wide or too narrow                                |
/// | `empty-row`            | a query that sees no key                                                       |
/// | `differs`              | the array is not what was expected, for none of the reasons above              |
struct MaskFault {
  std::string name;
  std::string says;                          ///< a sentence
  std::optional<int64_t> batch, head, q, k;  ///< the first place, by index in the array
};

struct MaskReport {
  std::vector<MaskFault> faults;
  std::string reading;                       ///< how the array was read: "bool, true keeps"
  std::vector<int64_t> shape;                ///< [batch, heads, q, k] as it was read
  std::optional<RecognisedMask> recognised;  ///< of what the array says, after `polarity`
};

/// Finds mistakes. Errors: kInvalidArgument for a type or a number of axes that no mask has, or an expected mask that
/// does not fit them; kCancelled.
REGARD_API MaskReport check_mask_array(const MaskArray& array, const MaskCheck& check = {});

}  // namespace regard
