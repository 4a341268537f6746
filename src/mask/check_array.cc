// check_mask_array(): the array as bits, its shape, its expression, and how it differs from what was expected.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"
#include "mask/array_reading.h"
#include "mask/node.h"
#include "mask/plan.h"
#include "mask/table_facts.h"
#include "regard/mask_proof.h"

namespace regard {
namespace {

MaskFault plain(std::string name, std::string says) { return {std::move(name), std::move(says), {}, {}, {}, {}}; }

std::string shown(const Mask& mask) {
  const std::string text = mask.text();
  return text.size() <= 120 ? text : text.substr(0, 117) + "...";
}

BitTable table_of(const std::vector<uint8_t>& visible, const std::vector<int64_t>& shape, Polarity polarity,
                  const MaskCheck& check) {
  TensorView<const uint8_t> view(visible.data(), {shape[0], shape[1], shape[2], shape[3]});
  // One that serves all.
  const auto spread = [&](size_t axis, const std::optional<int64_t>& length) {
    if (shape[axis] != 1 || !length || *length == 1) return;
    view.shape[axis] = *length;
    view.strides[axis] = 0;
  };
  if (check.expected && check.expected->depends_on_batch()) spread(0, check.batch);
  if (check.expected && check.expected->depends_on_head()) spread(1, check.num_q_heads);
  spread(2, check.q_len);
  spread(3, check.kv_len);
  return BitTable::from_array(polarity, view);
}

// The smallest pair (query, key, batch row, head) in which the table differs from the mask.
std::optional<MaskFault> first_difference(const BitTable& table, const Mask& mask, int64_t q_begin) {
  const MaskPlan plan(mask, {}, table.batch(), table.heads());
  std::vector<uint64_t> words(static_cast<size_t>(table.words_per_row()));
  for (int64_t q = 0; q < table.q_len(); ++q) {
    int64_t k = table.kv_len(), batch = 0, head = 0;
    for (int64_t b = 0; b < table.batch(); ++b)
      for (int64_t h = 0; h < table.heads(); ++h) {
        plan.fill_words(b, h, q_begin + q, 0, static_cast<int>(words.size()), words.data());
        const uint64_t* row = table.row(b, h, q);
        for (int64_t w = 0; 64 * w < k; ++w) {
          const uint64_t other = row[w] ^ words[static_cast<size_t>(w)];
          if (other == 0) continue;
          const int64_t at = 64 * w + std::countr_zero(other);  // beyond the keys a row has no bits, but the plan may
          if (at < k) k = at, batch = b, head = h;
          break;
        }
      }
    if (k == table.kv_len()) continue;
    const bool bit = (table.row(batch, head, q)[k / 64] >> (k % 64) & 1) != 0;
    return MaskFault{"differs",
                     fmt::format("the pair is {}, but {} in {}", bit ? "visible" : "hidden",
                                 explain_decision(mask, batch, head, q_begin + q, k), shown(mask)),
                     batch,
                     head,
                     q,
                     k};
  }
  return std::nullopt;
}

std::optional<MaskFault> empty_row(const BitTable& table) {
  for (int64_t b = 0; b < table.batch(); ++b)
    for (int64_t h = 0; h < table.heads(); ++h)
      for (int64_t q = 0; q < table.q_len(); ++q) {
        const uint64_t* row = table.row(b, h, q);
        if (std::all_of(row, row + table.words_per_row(), [](uint64_t word) { return word == 0; }))
          return MaskFault{
              "empty-row", "the query sees no key; its result is 0 here, NaN or an average elsewhere", b, h, q, {}};
      }
  return std::nullopt;
}

// The expected expression with one kind of change made everywhere it can be.
std::vector<Mask> with_other_windows(const Mask& mask) {
  std::vector<Mask> result;
  for (const auto& [left, right] : {std::pair<int64_t, int64_t>{1, 0}, {-1, 0}, {0, 1}, {0, -1}}) {
    bool changed = false;
    const std::function<Mask(const std::shared_ptr<const MaskNode>&)> rebuild = [&, l = left,
                                                                                 r = right](const auto& node) -> Mask {
      if (node->op == MaskOp::kWindow) {
        const auto moved = [&](int64_t width, int64_t by) {
          if (width == kUnlimited || by == 0 || width + by < 0) return width;
          changed = true;
          return width + by;
        };
        const int64_t to_left = moved(node->a, l);
        return Mask::window(to_left, moved(node->b, r));
      }
      if (node->children.empty()) return MaskNode::mask(node);
      MaskNode copy = *node;
      for (auto& child : copy.children) child = MaskNode::of(rebuild(child));
      copy.depth = 1;
      copy.nodes = 1;
      copy.bound.clear();
      return MaskNode::finish(std::move(copy));
    };
    const Mask other = rebuild(MaskNode::of(mask));
    if (changed) result.push_back(other);
  }
  return result;
}

std::optional<Mask> joined_otherwise(const Mask& mask) {
  const MaskOp op = mask.node().op;
  if (op != MaskOp::kAnd && op != MaskOp::kOr) return std::nullopt;
  std::vector<Mask> operands;
  for (const auto& child : mask.node().children) operands.push_back(MaskNode::mask(child));
  return join_masks(op == MaskOp::kAnd ? MaskOp::kOr : MaskOp::kAnd, operands);
}

// What the array is instead of `expected`, if it is one of the classics.
MaskFault name_difference(const BitTable& table, const BitTable& turned, const Mask& expected, int64_t q_begin,
                          MaskFault difference) {
  const auto is = [&](const Mask& mask, int64_t begin) { return begin >= 0 && equals_table(mask, table, begin); };
  const auto named = [&](std::string name, std::string says) {
    difference.name = std::move(name);
    difference.says = std::move(says);
    return difference;
  };
  const int64_t last = table.kv_len() - table.q_len();
  if (equals_table(expected, turned, q_begin))
    return named("polarity",
                 fmt::format("visible and hidden are the wrong way round: the complement is {}", shown(expected)));
  for (int64_t begin : {int64_t{0}, last}) {
    if (begin == q_begin || !is(expected, begin)) continue;
    return named("corner", fmt::format("{} with the first query at position {} ({} corner) instead of {}",
                                       shown(expected), begin, begin == 0 ? "top left" : "bottom right", q_begin));
  }
  if (const auto other = joined_otherwise(expected); other && is(*other, q_begin))
    return named(expected.node().op == MaskOp::kAnd ? "or-for-and" : "and-for-or",
                 fmt::format("{} instead of {}", shown(*other), shown(expected)));
  for (int64_t begin : {q_begin, int64_t{0}, last}) {
    // `causal` may stand at another corner than the rest, which then has to be free of positions.
    if ((begin != q_begin && expected.compares_positions()) || !is(expected & Mask::causal(), begin)) continue;
    return named(table.q_len() != table.kv_len() ? "causal-on-cross" : "extra-causal",
                 fmt::format("{} is cut by causal, which was not asked for", shown(expected)));
  }
  for (const Mask& other : with_other_windows(expected))
    if (is(other, q_begin))
      return named("window-count", fmt::format("{} instead of {}", shown(other), shown(expected)));
  if (table.q_len() == table.kv_len()) {
    std::vector<uint8_t> bits;
    for (int64_t b = 0; b < table.batch(); ++b)
      for (int64_t h = 0; h < table.heads(); ++h)
        for (int64_t q = 0; q < table.q_len(); ++q)
          for (int64_t k = 0; k < table.kv_len(); ++k)
            bits.push_back(static_cast<uint8_t>(table.row(b, h, k)[q / 64] >> (q % 64) & 1));
    const TensorView<const uint8_t> view(bits.data(), {table.batch(), table.heads(), table.q_len(), table.kv_len()});
    if (equals_table(expected, BitTable::from_array(Polarity::kKeep, view), q_begin))
      return named("swapped-axes", fmt::format("{} with queries and keys swapped", shown(expected)));
  }
  return difference;
}

// Where the queries stand, as far as it is known without a mask.
std::optional<int64_t> known_begin(const MaskCheck& check, const BitTable& table) {
  if (check.q_begin) return check.q_begin;
  if (table.q_len() == table.kv_len()) return 0;
  return std::nullopt;
}

// What can be said without knowing what was meant.
void look_alone(const BitTable& table, const BitTable& turned, const ArrayReading& reading, const MaskCheck& check,
                MaskReport& report) {
  const auto begin = known_begin(check, table);
  report.recognised = recognise_mask(table, begin, check.stop);
  const bool told = reading.truth_values && check.polarity.has_value();
  if (!told && begin) {
    // Masks let queries see their own key. One that hides all of them, and whose complement is a known rule, is turned.
    const int64_t first = *begin;
    bool own_hidden = true;
    for (int64_t b = 0; b < table.batch(); ++b)
      for (int64_t h = 0; h < table.heads() && own_hidden; ++h)
        for (int64_t q = 0; q < table.q_len() && own_hidden; ++q)
          own_hidden =
              first + q < table.kv_len() && (table.row(b, h, q)[(first + q) / 64] >> ((first + q) % 64) & 1) == 0;
    if (own_hidden) {
      const auto other = recognise_mask(turned, begin, check.stop);
      if (other && other->mask.node().op != MaskOp::kFull && other->mask.node().op != MaskOp::kNot) {
        report.faults.push_back(
            plain("polarity",
                  fmt::format(
                      "no query sees its own key, and the complement is {}: visible and hidden are the wrong way round",
                      shown(other->mask))));
        report.recognised = other;
      }
    }
  }
  if (!report.recognised) return;
  const Mask& mask = report.recognised->mask;
  if (!check.q_begin && table.q_len() != table.kv_len() && mask.compares_positions() && report.recognised->q_begin == 0)
    report.faults.push_back(
        plain("corner", fmt::format("{} with the first of {} queries at key 0 of {}: right for the first queries of a "
                                    "text or for none (causal has no place in "
                                    "cross-attention); the last ones would begin at {}. Say which with q_begin",
                                    shown(mask), table.q_len(), table.kv_len(), table.kv_len() - table.q_len())));
  if (mask.node().op == MaskOp::kOr && mask.node().children.back()->op == MaskOp::kDocuments)
    report.faults.push_back(
        plain("or-for-and", fmt::format("{} lets queries see other documents; was & meant?", shown(mask))));
}

}  // namespace

MaskReport check_mask_array(const MaskArray& array, const MaskCheck& check) {
  MaskReport report;
  report.shape = four_axes(array.shape);
  ArrayReading reading = read_elements(array, report.shape, check.stop);
  report.faults = std::move(reading.faults);
  const Polarity polarity = reading.truth_values ? check.polarity.value_or(Polarity::kKeep) : Polarity::kKeep;
  report.reading = reading.truth_values
                       ? fmt::format("{}, true {}", reading.type, polarity == Polarity::kKeep ? "keeps" : "drops")
                       : fmt::format("{}, added to the scores", reading.type);
  const auto misfit = shape_fault(array, report.shape, check);
  if (misfit) report.faults.push_back(*misfit);
  MaskCheck sizes = check;
  if (misfit) sizes.batch = sizes.num_q_heads = sizes.q_len = sizes.kv_len = std::nullopt;  // as it is
  const BitTable table = table_of(reading.visible, report.shape, polarity, sizes);
  const BitTable turned =
      table_of(reading.visible, report.shape, polarity == Polarity::kKeep ? Polarity::kDrop : Polarity::kKeep, sizes);
  report.shape = {table.batch(), table.heads(), table.q_len(), table.kv_len()};
  if (table.batch() == 0 || table.heads() == 0 || table.q_len() == 0 || table.kv_len() == 0) return report;

  bool is_turned = false;
  if (check.expected && !misfit) {
    const auto begin = known_begin(check, table);
    require(begin || !check.expected->compares_positions(),
            "[check_mask_array] {} queries and {} keys, but not where the queries stand among them; state q_begin: 0 "
            "for the first queries, {} for the last",
            table.q_len(), table.kv_len(), table.kv_len() - table.q_len());
    auto difference = first_difference(table, *check.expected, begin.value_or(0));
    if (!difference) {
      report.recognised = RecognisedMask{*check.expected, begin.value_or(0)};
    } else {
      report.faults.push_back(
          name_difference(table, turned, *check.expected, begin.value_or(0), *std::move(difference)));
      is_turned = report.faults.back().name == "polarity";
      report.recognised = is_turned
                              ? RecognisedMask{*check.expected, begin.value_or(0)}
                              : recognise_mask(table, begin, check.stop).value_or(RecognisedMask{Mask::none(), -1});
      if (report.recognised->q_begin < 0) report.recognised.reset();
    }
  } else if (!misfit) {
    look_alone(table, turned, reading, check, report);
    is_turned = std::any_of(report.faults.begin(), report.faults.end(),
                            [](const MaskFault& f) { return f.name == "polarity"; });
  }
  if (auto empty = empty_row(is_turned ? turned : table)) report.faults.push_back(*std::move(empty));
  return report;
}

}  // namespace regard
