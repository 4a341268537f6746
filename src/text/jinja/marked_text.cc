#include "text/jinja/marked_text.h"

#include <algorithm>

namespace regard::jinja {

Origin MarkedText::origin(size_t begin, size_t end) const noexcept {
  if (begin >= end) return Origin::kTemplate;
  const auto after = std::upper_bound(cuts_.begin(), cuts_.end(), begin);
  if (after != cuts_.end() && *after < end) return Origin::kContent;  // both kinds are in the range
  return (after - cuts_.begin()) % 2 == 0 ? first_ : flipped(first_);
}

void MarkedText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_ = origin;
  } else if (last_origin() != origin) {
    cuts_.push_back(bytes_.size());
  }
  bytes_.append(bytes);
}

void MarkedText::append(const MarkedText& other, size_t begin, size_t end) {
  auto cut = std::upper_bound(other.cuts_.begin(), other.cuts_.end(), begin);
  Origin origin = (cut - other.cuts_.begin()) % 2 == 0 ? other.first_ : flipped(other.first_);
  while (begin < end) {
    const size_t stop = cut == other.cuts_.end() ? end : std::min(end, *cut++);
    append(other.bytes().substr(begin, stop - begin), origin);
    begin = stop;
    origin = flipped(origin);
  }
}

MarkedText MarkedText::slice(size_t begin, size_t end) const {
  MarkedText part;
  part.append(*this, begin, end);
  return part;
}

}  // namespace regard::jinja
