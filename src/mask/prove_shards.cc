#include "mask/prove_shards.h"

#include <algorithm>

#include "base/checked.h"

namespace regard::mask_proof {
namespace {

std::vector<Interval> ranges_of(const ShardCut& cut, Interval positions) {
  if (cut.kind == ShardCut::Kind::kRanges) return cut.ranges;
  std::vector<Interval> ranges;
  const int64_t length = std::max<int64_t>(0, positions.end - positions.begin);
  const int64_t each = std::max<int64_t>(1, length / cut.ranks + (length % cut.ranks != 0 ? 1 : 0));
  for (int64_t begin = positions.begin; begin < positions.end; begin += each)
    ranges.push_back({begin, positions.end - begin < each ? positions.end : begin + each});
  return ranges;
}

}  // namespace

std::optional<std::vector<Part>> parts_of(const ShardCut& cut, Interval positions) {
  if (cut.kind == ShardCut::Kind::kStriped) return std::nullopt;
  const std::vector<Interval> ranges = ranges_of(cut, positions);
  std::vector<int64_t> ends{positions.begin, positions.end};
  for (const Interval& range : ranges)
    for (int64_t end : {range.begin, range.end})
      if (end > positions.begin && end < positions.end) ends.push_back(end);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<Part> parts;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    Part part{{ends[i], ends[i + 1]}, 0, 0};
    for (const Interval& range : ranges)
      if (range.begin <= part.positions.begin && part.positions.end <= range.end) {
        ++part.ranks;
        part.begin = range.begin;
      }
    parts.push_back(part);
  }
  return parts;
}

int64_t local_position(const ShardCut& cut, const std::vector<Part>* parts, int64_t p) {
  if (parts == nullptr) return p / cut.stripe / cut.ranks * cut.stripe + p % cut.stripe;
  const auto at = std::upper_bound(parts->begin(), parts->end(), p,
                                   [](int64_t x, const Part& part) { return x < part.positions.end; });
  return p - at->begin;
}

}  // namespace regard::mask_proof
