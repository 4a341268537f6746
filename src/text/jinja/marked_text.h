// Text that remembers, byte by byte, where it came from: the template or the contents it was given. Only the template
// may write special tokens, so every string operation of the interpreter is made of slices and appends of this class,
// which carry the marks along. Comparisons look at the bytes alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regard::jinja {

enum class Origin : bool { kTemplate = false, kContent = true };

class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string bytes, Origin origin) : bytes_(std::move(bytes)), first_(origin) {}

  std::string_view bytes() const noexcept { return bytes_; }
  size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }

  /// kContent as soon as one byte of [begin, end) is; kTemplate for an empty range.
  Origin origin(size_t begin, size_t end) const noexcept;
  Origin origin() const noexcept { return origin(0, size()); }

  void append(std::string_view bytes, Origin origin);
  void append(const MarkedText& other) { append(other, 0, other.size()); }
  /// Appends bytes [begin, end) of `other`.
  void append(const MarkedText& other, size_t begin, size_t end);
  MarkedText slice(size_t begin, size_t end) const;

  /// Calls visit(bytes, origin) for each longest run of one origin, in order.
  template <class Visitor>
  void for_each_run(Visitor visit) const {
    size_t begin = 0;
    Origin origin = first_;
    for (const size_t cut : cuts_) {
      visit(bytes().substr(begin, cut - begin), origin);
      begin = cut;
      origin = flipped(origin);
    }
    if (begin < size()) visit(bytes().substr(begin), origin);
  }

 private:
  static Origin flipped(Origin origin) noexcept {
    return origin == Origin::kTemplate ? Origin::kContent : Origin::kTemplate;
  }
  Origin last_origin() const noexcept { return cuts_.size() % 2 == 0 ? first_ : flipped(first_); }

  std::string bytes_;
  Origin first_ = Origin::kTemplate;
  std::vector<size_t> cuts_;  // where the origin changes: rising, inside (0, size), so most texts need none
};

}  // namespace regard::jinja
