// Why a mask lets one pair through or holds it back.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "mask/node.h"
#include "regard/mask_proof.h"

namespace regard {
namespace {

constexpr size_t kShownText = 60;  // characters of a term that a sentence repeats

MaskExplanation explain_node(const std::shared_ptr<const MaskNode>& node, int64_t batch, int64_t head, int64_t q,
                             int64_t k) {
  const Mask mask = MaskNode::mask(node);
  MaskExplanation result{mask.text(), false, {}};
  const auto part = [&](const auto& child) { result.parts.push_back(explain_node(child, batch, head, q, k)); };
  const auto sees = [](const MaskExplanation& e) { return e.sees; };
  switch (node->op) {
    case MaskOp::kNot:
      part(node->children.front());
      result.sees = !result.parts.front().sees;
      break;
    case MaskOp::kAnd:
      for (const auto& child : node->children) part(child);
      result.sees = std::all_of(result.parts.begin(), result.parts.end(), sees);
      break;
    case MaskOp::kOr:
      for (const auto& child : node->children) part(child);
      result.sees = std::any_of(result.parts.begin(), result.parts.end(), sees);
      break;
    case MaskOp::kPerHead:
      result.sees = mask.allowed(batch, head, q, k);  // also checks the head
      part(node->children[static_cast<size_t>(head)]);
      break;
    default:
      result.sees = mask.allowed(batch, head, q, k);
  }
  return result;
}

// The terms on which the answer of `e` rests.
void deciding(const MaskNode& node, const MaskExplanation& e, int64_t head,
              std::vector<const MaskExplanation*>& terms) {
  if (e.parts.empty()) return terms.push_back(&e);
  if (node.op == MaskOp::kPerHead) return deciding(*node.children[static_cast<size_t>(head)], e.parts[0], head, terms);
  const bool one_is_enough = (node.op == MaskOp::kAnd && !e.sees) || (node.op == MaskOp::kOr && e.sees);
  for (size_t i = 0; i < e.parts.size(); ++i) {
    if (one_is_enough && e.parts[i].sees != e.sees) continue;
    deciding(*node.children[i], e.parts[i], head, terms);
    if (one_is_enough) return;
  }
}

}  // namespace

MaskExplanation explain(const Mask& mask, int64_t batch, int64_t head, int64_t q, int64_t k) {
  require(batch >= 0 && head >= 0, "[explain] batch row {} and head {} asked; expected 0 or more", batch, head);
  require(q >= 0 && k >= 0, "[explain] query {} and key {} asked; positions are 0 or more", q, k);
  return explain_node(MaskNode::of(mask), batch, head, q, k);
}

std::string explain_decision(const Mask& mask, int64_t batch, int64_t head, int64_t q, int64_t k) {
  const MaskExplanation whole = explain(mask, batch, head, q, k);
  std::vector<const MaskExplanation*> found;
  deciding(mask.node(), whole, head, found);
  std::vector<std::string> terms;
  for (const MaskExplanation* term : found) {
    std::string text = term->text.size() <= kShownText ? term->text : term->text.substr(0, kShownText - 3) + "...";
    if (term->sees != whole.sees) text.insert(0, "~");  // it counts turned round
    if (std::find(terms.begin(), terms.end(), text) == terms.end()) terms.push_back(std::move(text));
  }
  return fmt::format("{} by {}", whole.sees ? "allowed" : "forbidden", fmt::join(terms, " and "));
}

}  // namespace regard
