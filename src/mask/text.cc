// The text form of an expression: what Mask::parse reads back. ~ binds tightest, then &, then |.
#include <fmt/format.h>

#include <iterator>

#include "mask/node.h"

namespace regard {
namespace {

constexpr int binding(MaskOp op) noexcept { return op == MaskOp::kOr ? 0 : op == MaskOp::kAnd ? 1 : 2; }

void write_list(std::string& out, const MaskList& list) {
  if (!list.name().empty()) {
    out += list.name();
    return;
  }
  for (int64_t r = 0; r < list.rows(); ++r) {
    if (r > 0) out += " / ";
    for (int64_t i = 0; i < list.size(r); ++i)
      fmt::format_to(std::back_inserter(out), "{}{}", i > 0 ? ", " : "", list.row(r)[i]);
  }
}

std::string width(int64_t n) { return n == kUnlimited ? "*" : std::to_string(n); }

bool is_zero(const MaskList& list) { return list.name().empty() && list == MaskList{0}; }

void write(std::string& out, const MaskNode& node, int around) {
  const bool parenthesised = binding(node.op) < around;
  if (parenthesised) out += '(';
  switch (node.op) {
    case MaskOp::kFull:
    case MaskOp::kNone:
    case MaskOp::kCausal: out += mask_op_name(node.op); break;
    case MaskOp::kWindow: out += "window(" + width(node.a) + ", " + width(node.b) + ")"; break;
    case MaskOp::kBlocks:
    case MaskOp::kChunk:
    case MaskOp::kDilated: fmt::format_to(std::back_inserter(out), "{}({})", mask_op_name(node.op), node.a); break;
    case MaskOp::kPrefix:
    case MaskOp::kLengths:
    case MaskOp::kDocuments:
    case MaskOp::kTree:
      out += mask_op_name(node.op);
      out += '(';
      if (node.op != MaskOp::kTree || !is_zero(node.first)) write_list(out, node.first);
      if (node.op == MaskOp::kTree) {
        if (!is_zero(node.first)) out += "; ";
        write_list(out, node.second);
      } else if (node.op == MaskOp::kDocuments && !node.shared_ids) {
        out += "; ";
        write_list(out, node.second);
      }
      out += ')';
      break;
    case MaskOp::kTable: out += "table(" + node.name + ")"; break;
    case MaskOp::kPerHead:
      out += "per_head(";
      for (size_t i = 0; i < node.children.size(); ++i) {
        if (i > 0) out += ", ";
        write(out, *node.children[i], 0);
      }
      out += ')';
      break;
    case MaskOp::kNot:
      out += '~';
      write(out, *node.children.front(), 2);
      break;
    case MaskOp::kAnd:
    case MaskOp::kOr:
      for (size_t i = 0; i < node.children.size(); ++i) {
        if (i > 0) fmt::format_to(std::back_inserter(out), " {} ", mask_op_name(node.op));
        write(out, *node.children[i], binding(node.op));
      }
      break;
  }
  if (parenthesised) out += ')';
}

}  // namespace

std::string_view mask_op_name(MaskOp op) noexcept {
  switch (op) {
    case MaskOp::kFull: return "full";
    case MaskOp::kNone: return "none";
    case MaskOp::kCausal: return "causal";
    case MaskOp::kWindow: return "window";
    case MaskOp::kPrefix: return "prefix";
    case MaskOp::kLengths: return "lengths";
    case MaskOp::kDocuments: return "documents";
    case MaskOp::kBlocks: return "blocks";
    case MaskOp::kChunk: return "chunk";
    case MaskOp::kDilated: return "dilated";
    case MaskOp::kTree: return "tree";
    case MaskOp::kTable: return "table";
    case MaskOp::kPerHead: return "per_head";
    case MaskOp::kNot: return "~";
    case MaskOp::kAnd: return "&";
    case MaskOp::kOr: return "|";
  }
  return "";
}

std::string term_label(const MaskNode& node) {
  std::string label(mask_op_name(node.op));
  if (node.op == MaskOp::kTable) return label + "(" + node.name + ")";
  std::string names = node.first.name();
  if (!node.shared_ids && !node.second.name().empty()) names += (names.empty() ? "" : "; ") + node.second.name();
  return names.empty() ? label : label + "(" + names + ")";
}

std::string Mask::text() const {
  std::string out;
  write(out, *node_, 0);
  return out;
}

}  // namespace regard
