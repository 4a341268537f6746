// Reading the text form of a property.
#include <algorithm>

#include "base/check.h"
#include "mask/parse.h"
#include "mask/prove.h"

namespace regard {
namespace {

constexpr std::string_view kKnown =
    "causal, window(l, r), documents(...), lengths(...), implies:MASK, equals:MASK, no-empty-row, reachable, "
    "decode-equals-prefill, ring(slots) or shards(cut; cut)";

constexpr int64_t kMaxRanks = 1024;

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char sign) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(sign, begin);
    parts.push_back(trim(text.substr(begin, end == std::string_view::npos ? end : end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

int64_t number(std::string_view text, std::string_view what, int64_t least) {
  int64_t value = 0;
  bool good = !text.empty() && text.size() <= 18;
  for (char c : text) {
    good = good && c >= '0' && c <= '9';
    if (good) value = value * 10 + (c - '0');
  }
  require(good && value >= least, "[MaskProperty::parse] '{}' given as {}; expected a whole number of at least {}",
          text, what, least);
  return value;
}

int64_t rank_count(std::string_view text) {
  const int64_t ranks = number(text, "the ranks of a cut", 1);
  require(ranks <= kMaxRanks, "[MaskProperty::parse] {} ranks given; at most {} are looked at", ranks, kMaxRanks);
  return ranks;
}

// What stands between the parentheses behind a name.
std::string_view arguments(std::string_view text, std::string_view name) {
  std::string_view rest = trim(text.substr(name.size()));
  require(rest.size() >= 2 && rest.front() == '(' && rest.back() == ')',
          "[MaskProperty::parse] '{}' given; expected {}(...)", text, name);
  return trim(rest.substr(1, rest.size() - 2));
}

ShardCut parse_cut(std::string_view text) {
  ShardCut cut;
  if (text.starts_with("contiguous")) {
    cut.ranks = rank_count(arguments(text, "contiguous"));
    return cut;
  }
  if (text.starts_with("striped")) {
    cut.kind = ShardCut::Kind::kStriped;
    const auto numbers = split(arguments(text, "striped"), ',');
    require(numbers.size() <= 2, "[MaskProperty::parse] '{}' given; expected striped(ranks) or striped(ranks, stripe)",
            text);
    cut.ranks = rank_count(numbers[0]);
    if (numbers.size() == 2) cut.stripe = number(numbers[1], "the positions of a stripe", 1);
    return cut;
  }
  cut.kind = ShardCut::Kind::kRanges;
  for (std::string_view range : split(text, ',')) {
    const auto ends = split(range, '-');
    require(ends.size() == 2,
            "[MaskProperty::parse] '{}' is no part of a cut; expected contiguous(ranks), striped(ranks), "
            "striped(ranks, stripe), or ranges of positions such as 0-511, 512-*",
            range);
    const int64_t first = number(ends[0], "the first position of a part", 0);
    const int64_t end = ends[1] == "*" ? kUnlimited : number(ends[1], "the last position of a part", first) + 1;
    cut.ranges.push_back({first, end});
  }
  cut.ranks = static_cast<int64_t>(cut.ranges.size());
  require(cut.ranks <= kMaxRanks, "[MaskProperty::parse] {} ranks given; at most {} are looked at", cut.ranks,
          kMaxRanks);
  return cut;
}

MaskProperty parse_shards(std::string_view text, MaskProperty property) {
  property.kind = MaskProperty::Kind::kShards;
  const auto parts = split(arguments(text, "shards"), ';');
  require(parts.size() == 2 || (parts.size() == 3 && (parts[2] == "local" || parts[2] == "global")),
          "[MaskProperty::parse] '{}' given; expected shards(cut of the queries; cut of the keys), and '; local' where "
          "ranks count from their own first position",
          text);
  property.q_cut = parse_cut(parts[0]);
  property.k_cut = parse_cut(parts[1]);
  if (parts.size() == 3 && parts[2] == "local") property.positions = ShardPositions::kLocal;
  return property;
}

}  // namespace

MaskProperty MaskProperty::parse(std::string_view text, const Bindings& bindings) {
  text = trim(text);
  MaskProperty property;
  property.text = text;
  const std::string_view name = trim(text.substr(0, text.find_first_of("(:")));
  const auto other_side = [&](Kind kind, std::string_view expression) {
    property.kind = kind;
    property.mask = Mask::parse(expression, bindings);
    return property;
  };
  const auto plain = [&](Kind kind) {
    require(text == name, "[MaskProperty::parse] '{}' given; {} takes nothing", text, name);
    property.kind = kind;
    return property;
  };
  if (name == "causal") return plain(Kind::kCausal);
  if (name == "no-empty-row") return plain(Kind::kNoEmptyRow);
  if (name == "reachable") return plain(Kind::kReachable);
  if (name == "decode-equals-prefill") return plain(Kind::kDecodeEqualsPrefill);
  if (name == "window" || name == "documents" || name == "lengths") {
    arguments(text, name);
    return other_side(Kind::kImplies, text);
  }
  if (name == "implies" || name == "equals") {
    const size_t colon = text.find(':');
    require(colon != std::string_view::npos && trim(text.substr(name.size())).starts_with(':'),
            "[MaskProperty::parse] '{}' given; expected {}:MASK", text, name);
    return other_side(name == "implies" ? Kind::kImplies : Kind::kEquals, text.substr(colon + 1));
  }
  if (name == "ring") {
    property.kind = Kind::kRing;
    const auto numbers = split(arguments(text, "ring"), ',');
    require(numbers.size() <= 2, "[MaskProperty::parse] '{}' given; expected ring(slots) or ring(slots, chunk)", text);
    property.size = number(numbers[0], "the slots of a ring", 1);
    if (numbers.size() == 2) property.chunk = number(numbers[1], "the chunk of a ring", 1);
    return property;
  }
  if (name == "shards") return parse_shards(text, std::move(property));
  fail(Code::kInvalidArgument, "[MaskProperty::parse] '{}' is no property; expected {}", text, kKnown);
}

std::string_view verdict_name(Verdict verdict) noexcept {
  return verdict == Verdict::kProved ? "proved" : verdict == Verdict::kRefuted ? "refuted" : "not decided";
}

}  // namespace regard
