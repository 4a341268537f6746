// From masks to formulas over an outer and an inner position.
#include "mask/node.h"
#include "mask/prove.h"

namespace regard::mask_proof {
namespace {

using Step = Formula::Step::Kind;

class Builder {
 public:
  Builder(int64_t batch, int64_t head, Axes axes, Shift shift)
      : batch_(batch), head_(head), swapped_(axes == Axes::kKeyOutside), shift_(shift) {}

  void add(const MaskNode& node) {
    switch (node.op) {
      case MaskOp::kFull:
        return formula.push(Step::kTrue);
      case MaskOp::kNone:
        return formula.push(Step::kFalse);
      case MaskOp::kCausal:
        return difference_at_most(0);
      case MaskOp::kWindow:
        if (node.a == kUnlimited) {
          formula.push(Step::kTrue);
        } else {
          difference_at_most(-static_cast<Wide>(node.a) - 1);
          formula.push(Step::kNot);
        }
        if (node.b == kUnlimited) return;
        difference_at_most(node.b);
        return formula.push(Step::kAnd);
      case MaskOp::kPrefix:
      case MaskOp::kLengths: {
        const Wide n = node.first.row()[node.first.size() == 1 ? 0 : batch_];
        return formula.push({.kind = swapped_ ? Atom::Kind::kOuter : Atom::Kind::kInner, .c = n + shift_.k});
      }
      case MaskOp::kBlocks:
        return block_not_after(node.a);
      case MaskOp::kChunk:
        formula.push(block(Atom::Kind::kBlockNotAfter, node.a));
        formula.push(block(Atom::Kind::kBlockBefore, node.a));
        formula.push(Step::kNot);
        return formula.push(Step::kAnd);
      case MaskOp::kDilated: {
        const Wide moved = static_cast<Wide>(shift_.k) - shift_.q;
        return formula.push({.kind = Atom::Kind::kCongruent, .c = swapped_ ? -moved : moved, .n = node.a});
      }
      case MaskOp::kPerHead:
        return add(*node.children[static_cast<size_t>(head_)]);
      case MaskOp::kNot:
        add(*node.children.front());
        return formula.push(Step::kNot);
      case MaskOp::kAnd:
      case MaskOp::kOr:
        add(*node.children.front());
        for (size_t i = 1; i < node.children.size(); ++i) {
          add(*node.children[i]);
          formula.push(node.op == MaskOp::kAnd ? Step::kAnd : Step::kOr);
        }
        return;
      case MaskOp::kDocuments:
      case MaskOp::kTree:
      case MaskOp::kTable:
        break;  // has_lists() is asked before
    }
    fail(Code::kInternal, "[prove] {} has no formula", term_label(node));
  }

  Formula formula;

 private:
  // k - q <= c, with both counted from where the mask was moved to.
  void difference_at_most(Wide c) {
    c += static_cast<Wide>(shift_.k) - shift_.q;
    if (!swapped_) return formula.push({.kind = Atom::Kind::kDiagonal, .c = c});
    formula.push({.kind = Atom::Kind::kDiagonal, .c = -c - 1});  // y - x >= -c
    formula.push(Step::kNot);
  }

  Atom block(Atom::Kind kind, int64_t n) const {
    return {.kind = kind, .n = n, .x_phase = swapped_ ? shift_.k : shift_.q, .y_phase = swapped_ ? shift_.q : shift_.k};
  }

  // The key's block is not after the query's.
  void block_not_after(int64_t n) {
    if (!swapped_) return formula.push(block(Atom::Kind::kBlockNotAfter, n));
    formula.push(block(Atom::Kind::kBlockBefore, n));
    formula.push(Step::kNot);
  }

  int64_t batch_, head_;
  bool swapped_;
  Shift shift_;
};

}  // namespace

void Formula::join(const Formula& other, Step::Kind joined) {
  for (Step step : other.steps) {
    if (step.kind == Step::Kind::kAtom) step.atom += atoms.size();
    steps.push_back(step);
  }
  atoms.insert(atoms.end(), other.atoms.begin(), other.atoms.end());
  push(joined);
}

bool has_lists(const MaskNode& node) noexcept {
  if (node.op == MaskOp::kDocuments || node.op == MaskOp::kTree || node.op == MaskOp::kTable) return true;
  for (const auto& child : node.children)
    if (has_lists(*child)) return true;
  return false;
}

Formula formula_of(const Mask& mask, int64_t batch, int64_t head, Axes axes, Shift shift) {
  Builder builder(batch, head, axes, shift);
  builder.add(mask.node());
  return std::move(builder.formula);
}

}  // namespace regard::mask_proof
