// One question at a time: Mask::allowed walks the expression and reads each term straight from its definition. Slow and
// plain on purpose; plans, words and pictures are checked against it.
#include <algorithm>

#include "base/check.h"
#include "mask/node.h"

namespace regard {
namespace {

struct Pair {
  int64_t batch, head, q, k;
};

int64_t number_for(std::string_view term, const MaskList& list, int64_t batch) {
  require(list.size() == 1 || batch < list.size(), "[Mask::allowed] batch row {} asked, but {} has numbers for {}",
          batch, term, list.size());
  return list.row()[list.size() == 1 ? 0 : batch];
}

int64_t row_for(std::string_view term, const MaskList& list, int64_t batch) {
  require(list.rows() == 1 || batch < list.rows(), "[Mask::allowed] batch row {} asked, but {} has lists for {}", batch,
          term, list.rows());
  return list.row_of(batch);
}

bool in_tree(const MaskNode& node, const Pair& at) {
  const int64_t base = number_for("tree", node.first, at.batch), r = row_for("tree", node.second, at.batch);
  const int64_t count = node.second.size(r), *parent = node.second.row(r);
  if (at.q >= base && at.q - base >= count) return false;  // beyond the list
  if (at.k < base) return true;
  if (at.q < base || at.k - base >= count) return false;
  for (int64_t up = at.q - base; up != -1; up = parent[up])
    if (up == at.k - base) return true;
  return false;
}

bool sees(const MaskNode& node, const Pair& at) {
  const auto each = [&](const auto& child) { return sees(*child, at); };
  switch (node.op) {
    case MaskOp::kFull: return true;
    case MaskOp::kNone: return false;
    case MaskOp::kCausal: return at.k <= at.q;
    case MaskOp::kWindow: return saturating_add(at.q, -node.a) <= at.k && at.k <= saturating_add(at.q, node.b);
    case MaskOp::kPrefix: return at.k < number_for("prefix", node.first, at.batch);
    case MaskOp::kLengths: return at.k < number_for("lengths", node.first, at.batch);
    case MaskOp::kDocuments: {
      const int64_t q_row = row_for("documents", node.first, at.batch),
                    k_row = row_for("documents", node.second, at.batch);
      return at.q < node.first.size(q_row) && at.k < node.second.size(k_row) &&
             node.first.row(q_row)[at.q] == node.second.row(k_row)[at.k];
    }
    case MaskOp::kBlocks: return at.k / node.a <= at.q / node.a;
    case MaskOp::kChunk: return at.k / node.a == at.q / node.a;
    case MaskOp::kDilated: return at.q % node.a == at.k % node.a;
    case MaskOp::kTree: return in_tree(node, at);
    case MaskOp::kTable: {
      const BitTable& bits = *node.bits;
      require(bits.batch() == 1 || at.batch < bits.batch(), "[Mask::allowed] batch row {} asked, but table({}) has {}",
              at.batch, node.name, bits.batch());
      require(bits.heads() == 1 || at.head < bits.heads(), "[Mask::allowed] head {} asked, but table({}) has {}",
              at.head, node.name, bits.heads());
      return bits.batch() > 0 && bits.heads() > 0 && at.q < bits.q_len() && at.k < bits.kv_len() &&
             (bits.row(at.batch, at.head, at.q)[at.k / 64] >> (at.k % 64) & 1) != 0;
    }
    case MaskOp::kPerHead:
      require(at.head < static_cast<int64_t>(node.children.size()),
              "[Mask::allowed] head {} asked, but per_head has {} masks", at.head, node.children.size());
      return sees(*node.children[static_cast<size_t>(at.head)], at);
    case MaskOp::kNot: return !sees(*node.children.front(), at);
    case MaskOp::kAnd: return std::all_of(node.children.begin(), node.children.end(), each);
    case MaskOp::kOr: return std::any_of(node.children.begin(), node.children.end(), each);
  }
  return false;
}

}  // namespace

bool Mask::allowed(int64_t batch, int64_t head, int64_t q, int64_t k) const {
  require(batch >= 0 && head >= 0, "[Mask::allowed] batch row {} and head {} asked; expected 0 or more", batch, head);
  ++mask_pair_evaluations;
  return q >= 0 && k >= 0 && sees(*node_, {batch, head, q, k});
}

}  // namespace regard
