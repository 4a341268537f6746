// From expression to program: checks every list against the batch and every per_head against the heads, and resolves
// the data of each term once.
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "mask/program.h"

namespace regard::mask_program {
namespace {

// The index of every id of one batch row, and where its keys begin and end.
DocumentRow document_row(const int64_t* q_ids, int64_t q_len, const int64_t* k_ids, int64_t k_len) {
  struct Run {
    Interval keys;
    int64_t count = 0;
    int32_t index = 0;
  };
  std::unordered_map<int64_t, Run> runs;
  DocumentRow row;
  row.k_len = k_len;
  for (int64_t k = 0; k < k_len;) {
    int64_t end = k + 1;
    while (end < k_len && k_ids[end] == k_ids[k]) ++end;
    Run& run = runs.try_emplace(k_ids[k], Run{{k, end}, 0, static_cast<int32_t>(runs.size())}).first->second;
    run.keys.end = end;
    run.count += end - k;
    k = end;
  }
  for (const auto& [id, run] : runs) row.runs = row.runs && run.count == run.keys.end - run.keys.begin;

  row.seen.reserve(static_cast<size_t>(q_len));
  Interval last{0, 0};
  const Run* run = nullptr;
  for (int64_t q = 0; q < q_len; ++q) {
    if (q == 0 || q_ids[q] != q_ids[q - 1]) {
      const auto found = runs.find(q_ids[q]);
      run = found == runs.end() ? nullptr : &found->second;
    }
    // A query whose document has no key sees an empty interval, put where it does not disturb the order.
    const Interval seen = run != nullptr ? run->keys : Interval{last.end, last.end};
    row.rising = row.rising && seen.begin >= last.begin && seen.end >= last.end;
    row.seen.push_back(seen);
    if (!row.runs) row.q_ids.push_back(run != nullptr ? run->index : -1);
    last = seen;
  }
  if (!row.runs)
    for (int64_t k = 0; k < k_len; ++k) row.k_ids.push_back(runs.at(k_ids[k]).index);
  return row;
}

// Numbers the nodes by a depth-first walk. Children are chained in two arrays, so the walk needs no stack of its own.
TreeRow tree_row(const int64_t* parents, int64_t count) {
  const auto n = static_cast<size_t>(count);
  TreeRow row;
  row.enter.assign(n, 0);
  row.leave.assign(n, 0);
  std::vector<int32_t> first_child(n + 1, -1), next_sibling(n, -1);  // the roots are the children of "no node", n
  for (int64_t i = count - 1; i >= 0; --i) {
    const size_t up = parents[i] < 0 ? n : static_cast<size_t>(parents[i]);
    next_sibling[static_cast<size_t>(i)] = first_child[up];
    first_child[up] = static_cast<int32_t>(i);
    row.rising = row.rising && parents[i] < i;
  }
  int32_t clock = 0;
  int64_t node = first_child[n];
  while (node >= 0) {
    row.enter[static_cast<size_t>(node)] = clock++;
    if (first_child[static_cast<size_t>(node)] >= 0) {
      node = first_child[static_cast<size_t>(node)];
      continue;
    }
    while (node >= 0) {  // leave, then go on with the next sibling or climb
      row.leave[static_cast<size_t>(node)] = clock;
      if (next_sibling[static_cast<size_t>(node)] >= 0) {
        node = next_sibling[static_cast<size_t>(node)];
        break;
      }
      node = parents[node];
    }
  }
  return row;
}

class Compiler {
 public:
  Compiler(int64_t batch, int64_t heads) {
    out_.batch = batch;
    out_.heads = heads;
  }

  Compiled run(const MaskNode& root, const MaskLimits& limits) {
    check(root);
    for (int64_t length : limits.key_lengths)
      require(length >= 0, "[MaskPlan] key length {} given; expected 0 or more", length);
    std::vector<int32_t> limit_atoms;
    if (!limits.key_lengths.empty()) {
      Atom atom;
      atom.op = MaskOp::kLengths;
      atom.label = "the key lengths beside the mask";
      atom.numbers = limits.key_lengths;
      check_rows(atom.label, "numbers", static_cast<int64_t>(atom.numbers.size()));
      limit_atoms.push_back(add(std::move(atom)));
      out_.depends_on_batch |= limits.key_lengths.size() > 1;
    }
    if (limits.documents) {
      const auto& [q_ids, k_ids] = *limits.documents;
      Atom atom;
      atom.op = MaskOp::kDocuments;
      atom.label = "the documents beside the mask";
      check_rows(atom.label, "lists", q_ids.rows());
      check_rows(atom.label, "lists", k_ids.rows());
      resolve_documents(atom, q_ids, k_ids, q_ids == k_ids);
      limit_atoms.push_back(add(std::move(atom)));
      out_.depends_on_batch |= q_ids.rows() > 1 || k_ids.rows() > 1;
    }
    out_.depends_on_batch |= root.depends_on_batch;
    out_.depends_on_head = root.depends_on_head;

    // Only per_head changes the program from head to head; a table reads its head when it is asked.
    const int64_t variants = uses_per_head_ ? out_.heads : 1;
    for (int64_t h = 0; h < variants; ++h) {
      Program program;
      emit(root, h, program);
      for (int32_t atom : limit_atoms) {
        program.steps.push_back({Step::Kind::kAtom, atom});
        program.steps.push_back({Step::Kind::kAnd, 0});
      }
      describe(program);
      out_.programs.push_back(std::move(program));
    }
    return std::move(out_);
  }

 private:
  void check_rows(std::string_view label, std::string_view what, int64_t rows) const {
    require(rows == 1 || rows == out_.batch,
            "[MaskPlan] {} has {} {} for a batch of {}; give one for all, or one per batch row", label, rows, what,
            out_.batch);
  }

  // Every term is checked, also those of heads that are not there.
  void check(const MaskNode& node) {
    const std::string label = term_label(node);
    switch (node.op) {
      case MaskOp::kPrefix:
      case MaskOp::kLengths: check_rows(label, "numbers", node.first.size()); break;
      case MaskOp::kDocuments:
        check_rows(label, "lists", node.first.rows());
        check_rows(label, "lists", node.second.rows());
        break;
      case MaskOp::kTree:
        check_rows(label, "base numbers", node.first.size());
        check_rows(label, "lists", node.second.rows());
        break;
      case MaskOp::kTable:
        require(node.bits->batch() == 1 || node.bits->batch() == out_.batch,
                "[MaskPlan] {} has shape [{}, {}, {}, {}] for a batch of {}; its first axis must be 1 or the batch",
                label, node.bits->batch(), node.bits->heads(), node.bits->q_len(), node.bits->kv_len(), out_.batch);
        require(node.bits->heads() == 1 || node.bits->heads() == out_.heads,
                "[MaskPlan] {} has shape [{}, {}, {}, {}] for {} query heads; its second axis must be 1 or the number "
                "of query heads",
                label, node.bits->batch(), node.bits->heads(), node.bits->q_len(), node.bits->kv_len(), out_.heads);
        break;
      case MaskOp::kPerHead:
        uses_per_head_ = true;
        require(static_cast<int64_t>(node.children.size()) == out_.heads,
                "[MaskPlan] per_head has {} masks for {} query head{}; give one for each (regard mask: --heads {})", node.children.size(), out_.heads,
                out_.heads == 1 ? "" : "s", node.children.size());
        break;
      default: break;
    }
    for (const auto& child : node.children) check(*child);
  }

  int32_t add(Atom atom) {
    out_.atoms.push_back(std::move(atom));
    return static_cast<int32_t>(out_.atoms.size()) - 1;
  }

  void resolve_documents(Atom& atom, const MaskList& q_ids, const MaskList& k_ids, bool shared) {
    atom.a = shared ? 1 : 0;
    for (int64_t r = 0; r < std::max(q_ids.rows(), k_ids.rows()); ++r) {
      const int64_t q = q_ids.row_of(r), k = k_ids.row_of(r);
      atom.documents.push_back(document_row(q_ids.row(q), q_ids.size(q), k_ids.row(k), k_ids.size(k)));
    }
  }

  // The atom of a term; one per node, however many heads and places use it.
  int32_t atom_of(const MaskNode& node) {
    const auto known = atom_of_node_.find(&node);
    if (known != atom_of_node_.end()) return known->second;
    Atom atom;
    atom.op = node.op;
    atom.a = node.a;
    atom.b = node.b;
    atom.bits = node.bits;
    atom.label = term_label(node);
    if (node.op == MaskOp::kPrefix || node.op == MaskOp::kLengths || node.op == MaskOp::kTree)
      atom.numbers.assign(node.first.row(), node.first.row() + node.first.size());
    if (node.op == MaskOp::kDocuments) resolve_documents(atom, node.first, node.second, node.shared_ids);
    if (node.op == MaskOp::kTree)
      for (int64_t r = 0; r < node.second.rows(); ++r)
        atom.trees.push_back(tree_row(node.second.row(r), node.second.size(r)));
    if (node.op == MaskOp::kDilated)
      for (int64_t bit = 0; bit < 64; bit = saturating_add(bit, node.a)) atom.pattern |= uint64_t{1} << bit;
    return atom_of_node_[&node] = add(std::move(atom));
  }

  void emit(const MaskNode& node, int64_t head, Program& program) {
    if (node.op == MaskOp::kPerHead) return emit(*node.children[static_cast<size_t>(head)], head, program);
    if (node.children.empty()) {
      program.steps.push_back({Step::Kind::kAtom, atom_of(node)});
      return;
    }
    const Step::Kind kind = node.op == MaskOp::kNot   ? Step::Kind::kNot
                            : node.op == MaskOp::kAnd ? Step::Kind::kAnd
                                                      : Step::Kind::kOr;
    emit(*node.children.front(), head, program);
    if (kind == Step::Kind::kNot) program.steps.push_back({kind, 0});
    for (size_t i = 1; i < node.children.size(); ++i) {
      emit(*node.children[i], head, program);
      program.steps.push_back({kind, 0});
    }
  }

  void describe(Program& program) const {
    std::array<RowShape, kMaxStack> stack;
    size_t top = 0;
    for (const Step& step : program.steps) {
      if (step.kind == Step::Kind::kAtom) {
        const Atom& atom = out_.atoms[static_cast<size_t>(step.atom)];
        program.interval_terms &= is_interval_term(atom);
        ++program.atoms;
        stack[top++] = row_shape(atom);
      } else if (step.kind == Step::Kind::kNot) {
        const RowShape x = stack[top - 1];
        const bool one = x.interval && (x.from_zero || x.to_end);  // cutting off one end leaves one interval
        stack[top - 1] = {one, one && x.to_end, one && x.from_zero, false};
      } else {
        const RowShape y = stack[--top], x = stack[top - 1];
        RowShape z{x.interval && y.interval, x.from_zero && y.from_zero, x.to_end && y.to_end,
                   x.around_own && y.around_own};
        // A union is one interval when both sides share a point: key 0, the far end, or the own position.
        if (step.kind == Step::Kind::kOr) z.interval = z.interval && (z.from_zero || z.to_end || z.around_own);
        if (!z.interval) z = {};
        stack[top - 1] = z;
      }
    }
    program.shape = stack[0];
    program.band = band(program);
  }

  std::optional<Band> band(const Program& program) const {
    Band band{.ends = {kEnd}};
    for (const Step& step : program.steps) {
      if (step.kind == Step::Kind::kAnd) continue;
      if (step.kind != Step::Kind::kAtom) return std::nullopt;
      const Atom& atom = out_.atoms[static_cast<size_t>(step.atom)];
      switch (atom.op) {
        case MaskOp::kFull: break;
        case MaskOp::kCausal: band.right = 0; break;
        case MaskOp::kWindow:
          band.left = std::min(band.left, atom.a);
          band.right = std::min(band.right, atom.b);
          break;
        case MaskOp::kPrefix:
        case MaskOp::kLengths: {
          if (band.ends.size() < atom.numbers.size()) band.ends.resize(atom.numbers.size(), band.ends.front());
          for (size_t b = 0; b < band.ends.size(); ++b)
            band.ends[b] = std::min(band.ends[b], Atom::of_row(atom.numbers, static_cast<int64_t>(b)));
          break;
        }
        default: return std::nullopt;
      }
    }
    return band;
  }

  Compiled out_;
  bool uses_per_head_ = false;
  std::unordered_map<const MaskNode*, int32_t> atom_of_node_;
};

}  // namespace

Compiled compile(const Mask& mask, const MaskLimits& limits, int64_t batch, int64_t heads) {
  require(batch >= 0 && heads >= 0, "[MaskPlan] batch {} and {} query heads given; expected 0 or more", batch, heads);
  return Compiler(batch, heads).run(mask.node(), limits);
}

}  // namespace regard::mask_program
