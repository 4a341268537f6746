// Building expressions: every term checks its numbers here, every operator flattens and checks the limits.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "mask/hash.h"
#include "mask/node.h"

namespace regard {
namespace {

// The numbers of `prefix`, `lengths` and the base of a tree: one for all batch rows, or one per row.
void require_counts(std::string_view term, const MaskList& n) {
  require(n.rows() == 1 && n.size() >= 1,
          "[Mask::{}] expected one number, or one number per batch row in a single list", term);
  for (int64_t i = 0; i < n.size(); ++i)
    require(n.row()[i] >= 0, "[Mask::{}] {} given; expected 0 or more", term, n.row()[i]);
}

Mask leaf(MaskOp op, int64_t a = 0, int64_t b = 0) {
  MaskNode node;
  node.op = op;
  node.a = a;
  node.b = b;
  return MaskNode::finish(std::move(node));
}

Mask counted(MaskOp op, std::string_view term, MaskList n) {
  require_counts(term, n);
  MaskNode node;
  node.op = op;
  node.first = std::move(n);
  return MaskNode::finish(std::move(node));
}

Mask stepped(MaskOp op, std::string_view term, int64_t n) {
  require(n >= 1, "[Mask::{}] {} given; expected 1 or more", term, n);
  return leaf(op, n);
}

bool more_than_one(const MaskList& list, bool one_number_per_row) {
  return one_number_per_row ? list.size() > 1 : list.rows() > 1;
}

bool same_content(const MaskNode::Bound& a, const MaskNode::Bound& b) {
  if (a.list != nullptr && b.list != nullptr) return *a.list == *b.list;
  return a.table != nullptr && b.table != nullptr && *a.table == *b.table;
}

// Sorted by kind and name, each name once; the same name with other content would make the text form ambiguous.
void settle(std::vector<MaskNode::Bound>& bound) {
  const auto key = [](const MaskNode::Bound& x) { return std::pair(x.table != nullptr, x.name); };
  std::sort(bound.begin(), bound.end(), [&](const auto& x, const auto& y) { return key(x) < key(y); });
  for (size_t i = 1; i < bound.size(); ++i)
    require(key(bound[i - 1]) != key(bound[i]) || same_content(bound[i - 1], bound[i]),
            "[Mask] the name '{}' stands for two different {} in one mask", bound[i].name,
            bound[i].table != nullptr ? "tables" : "lists");
  bound.erase(std::unique(bound.begin(), bound.end(), [&](const auto& x, const auto& y) { return key(x) == key(y); }),
              bound.end());
}

}  // namespace

Mask MaskNode::finish(MaskNode fields) {
  auto node = std::make_shared<MaskNode>(std::move(fields));
  const bool counts = node->op == MaskOp::kPrefix || node->op == MaskOp::kLengths || node->op == MaskOp::kTree;
  ContentHash hash(static_cast<uint64_t>(node->op) + 16);
  hash.add(static_cast<uint64_t>(node->a));
  hash.add(static_cast<uint64_t>(node->b));
  hash.add(node->shared_ids ? 1 : 0);
  hash.add(node->first.hash());
  hash.add(node->second.hash());
  if (node->bits) hash.add(node->bits->hash());

  node->depends_on_batch = more_than_one(node->first, counts) || more_than_one(node->second, false) ||
                           (node->bits && node->bits->batch() > 1);
  node->depends_on_head = (node->bits && node->bits->heads() > 1) || node->op == MaskOp::kPerHead;
  switch (node->op) {
    case MaskOp::kCausal:
    case MaskOp::kBlocks:
    case MaskOp::kChunk:
    case MaskOp::kDilated:
    case MaskOp::kTree: node->compares_positions = true; break;
    case MaskOp::kWindow: node->compares_positions = node->a != kUnlimited || node->b != kUnlimited; break;
    case MaskOp::kDocuments: node->compares_positions = node->shared_ids; break;
    default: break;
  }
  for (const MaskList* list : {&node->first, &node->second})
    if (!list->name().empty()) node->bound.push_back({list->name(), list, nullptr});
  if (node->bits) node->bound.push_back({node->name, nullptr, &*node->bits});

  for (const auto& child : node->children) {
    node->depth = std::max(node->depth, child->depth + 1);
    node->nodes += child->nodes;
    node->depends_on_batch |= child->depends_on_batch;
    node->depends_on_head |= child->depends_on_head;
    node->compares_positions |= child->compares_positions;
    node->bound.insert(node->bound.end(), child->bound.begin(), child->bound.end());
    hash.add(child->hash);
  }
  node->hash = hash.value();
  if (node->depth > kMaxMaskDepth)
    fail(Code::kResourceExhausted, "[Mask] the expression is {} levels deep; at most {} are allowed", node->depth,
         kMaxMaskDepth);
  if (node->nodes > kMaxMaskNodes)
    fail(Code::kResourceExhausted, "[Mask] the expression has {} terms and operators; at most {} are allowed",
         node->nodes, kMaxMaskNodes);
  if (node->bound.size() > 1) settle(node->bound);
  return Mask(std::move(node));
}

Mask::Mask() : Mask(full()) {}

Mask Mask::full() { return leaf(MaskOp::kFull); }
Mask Mask::none() { return leaf(MaskOp::kNone); }
Mask Mask::causal() { return leaf(MaskOp::kCausal); }

Mask Mask::window(int64_t left, int64_t right) {
  require(left >= 0 && right >= 0,
          "[Mask::window] window({}, {}) given; widths are 0 or more, and an open side is kUnlimited (* in text)", left,
          right);
  return leaf(MaskOp::kWindow, left, right);
}

Mask Mask::prefix(int64_t n) { return prefix(MaskList{n}); }
Mask Mask::prefix(MaskList n) { return counted(MaskOp::kPrefix, "prefix", std::move(n)); }
Mask Mask::lengths(MaskList n) { return counted(MaskOp::kLengths, "lengths", std::move(n)); }

Mask Mask::documents(MaskList ids) {
  MaskNode node;
  node.op = MaskOp::kDocuments;
  node.shared_ids = true;
  node.first = node.second = std::move(ids);
  return MaskNode::finish(std::move(node));
}

Mask Mask::documents(MaskList q_ids, MaskList k_ids) {
  require(q_ids.rows() == 1 || k_ids.rows() == 1 || q_ids.rows() == k_ids.rows(),
          "[Mask::documents] query ids for {} batch rows and key ids for {}", q_ids.rows(), k_ids.rows());
  MaskNode node;
  node.op = MaskOp::kDocuments;
  node.first = std::move(q_ids);
  node.second = std::move(k_ids);
  return MaskNode::finish(std::move(node));
}

Mask Mask::blocks(int64_t n) { return stepped(MaskOp::kBlocks, "blocks", n); }
Mask Mask::chunk(int64_t n) { return stepped(MaskOp::kChunk, "chunk", n); }
Mask Mask::dilated(int64_t n) { return stepped(MaskOp::kDilated, "dilated", n); }

Mask Mask::tree(MaskList parents) { return tree(MaskList{0}, std::move(parents)); }

Mask Mask::tree(MaskList base, MaskList parents) {
  require_counts("tree", base);
  require(base.size() == 1 || parents.rows() == 1 || base.size() == parents.rows(),
          "[Mask::tree] base numbers for {} batch rows and parents for {}", base.size(), parents.rows());
  if (const auto fault = tree_fault(parents)) fail(Code::kInvalidArgument, "[Mask::tree] {}", *fault);
  MaskNode node;
  node.op = MaskOp::kTree;
  node.first = std::move(base);
  node.second = std::move(parents);
  return MaskNode::finish(std::move(node));
}

Mask Mask::table(std::string name, BitTable bits) {
  require(is_mask_name(name),
          "[Mask::table] '{}' is no name; expected a letter or '_' followed by letters, digits and '_'", name);
  MaskNode node;
  node.op = MaskOp::kTable;
  node.name = std::move(name);
  node.bits = std::move(bits);
  return MaskNode::finish(std::move(node));
}

Mask Mask::per_head(std::vector<Mask> masks) {
  require(!masks.empty(), "[Mask::per_head] no mask given; expected one per query head");
  MaskNode node;
  node.op = MaskOp::kPerHead;
  for (const Mask& mask : masks) node.children.push_back(MaskNode::of(mask));
  return MaskNode::finish(std::move(node));
}

Mask Mask::from_array(Polarity polarity, TensorView<const bool> values, std::string name) {
  return table(std::move(name), BitTable::from_array(polarity, values));
}

Mask Mask::from_array(Polarity polarity, TensorView<const uint8_t> values, std::string name) {
  return table(std::move(name), BitTable::from_array(polarity, values));
}

Mask Mask::operator~() const {
  MaskNode node;
  node.op = MaskOp::kNot;
  node.children.push_back(node_);
  return MaskNode::finish(std::move(node));
}

Mask operator&(const Mask& a, const Mask& b) { return join_masks(MaskOp::kAnd, {a, b}); }
Mask operator|(const Mask& a, const Mask& b) { return join_masks(MaskOp::kOr, {a, b}); }

Mask join_masks(MaskOp op, const std::vector<Mask>& operands) {
  if (operands.size() == 1) return operands.front();
  MaskNode node;
  node.op = op;
  for (const Mask& operand : operands) {
    const auto& child = MaskNode::of(operand);
    if (child->op == op) {
      node.children.insert(node.children.end(), child->children.begin(), child->children.end());
    } else {
      node.children.push_back(child);
    }
  }
  return MaskNode::finish(std::move(node));
}

Bindings Mask::bindings() const {
  Bindings result;
  for (const auto& bound : node_->bound) {
    if (bound.list != nullptr) result.lists.emplace(bound.name, *bound.list);
    if (bound.table != nullptr) result.tables.emplace(bound.name, *bound.table);
  }
  return result;
}

bool Mask::depends_on_batch() const noexcept { return node_->depends_on_batch; }
bool Mask::depends_on_head() const noexcept { return node_->depends_on_head; }
bool Mask::compares_positions() const noexcept { return node_->compares_positions; }
uint64_t Mask::hash() const noexcept { return node_->hash; }

bool same(const MaskNode& a, const MaskNode& b) noexcept {
  if (&a == &b) return true;
  if (a.hash != b.hash || a.op != b.op || a.a != b.a || a.b != b.b || a.shared_ids != b.shared_ids ||
      a.children.size() != b.children.size())
    return false;
  if (!(a.first == b.first) || !(a.second == b.second) || !(a.bits == b.bits)) return false;
  for (size_t i = 0; i < a.children.size(); ++i)
    if (!same(*a.children[i], *b.children[i])) return false;
  return true;
}

bool operator==(const Mask& a, const Mask& b) noexcept { return same(*a.node_, *b.node_); }

Placement resolve_placement(const Mask& mask, const std::optional<Placement>& placement, int64_t q_len,
                            int64_t kv_len) {
  if (placement) {
    require(placement->q_begin >= 0 && placement->k_begin >= 0,
            "[resolve_placement] q_begin {} and k_begin {} given; expected 0 or more", placement->q_begin,
            placement->k_begin);
    return *placement;
  }
  if (q_len != kv_len && mask.compares_positions()) {
    const MaskNode* node = &mask.node();
    while (!node->children.empty())
      node = std::find_if(node->children.begin(), node->children.end(), [](const auto& child) {
               return child->compares_positions;
             })->get();
    fail(Code::kInvalidArgument,
         "[resolve_placement] {} queries and {} keys, but not where the queries stand among them, and {} compares "
         "their positions; "
         "state a Placement: q_begin 0 for the first queries, q_begin {} for the last",
         q_len, kv_len, term_label(*node), kv_len - q_len);
  }
  return {};
}

// Walks from every node towards its root, marking what was seen on this walk; linear, because a walk stops where an
// earlier one has been.
std::optional<std::string> tree_fault(const MaskList& parents) {
  for (int64_t r = 0; r < parents.rows(); ++r) {
    const int64_t* parent = parents.row(r);
    const int64_t count = parents.size(r);
    std::vector<int64_t> walk(static_cast<size_t>(count), -1);  // the node whose walk came by, -1 for none yet
    for (int64_t start = 0; start < count; ++start) {
      for (int64_t node = start; node != -1 && walk[static_cast<size_t>(node)] != start; node = parent[node]) {
        if (walk[static_cast<size_t>(node)] != -1) break;
        walk[static_cast<size_t>(node)] = start;
        const int64_t up = parent[node];
        if (up < -1 || up >= count)
          return fmt::format("node {} hangs from {}; expected -1 (a root) or a node below {}", node, up, count);
        if (up != -1 && walk[static_cast<size_t>(up)] == start) return fmt::format("node {} is its own ancestor", up);
      }
    }
  }
  return std::nullopt;
}

}  // namespace regard
