// A stable sort that stays inside its range whatever the comparison says: values of a template need not have a consistent
// order (NaN), and the comparison may throw.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace regard::jinja {

template <class T, class Before>
void merge_sort(std::vector<T>& items, Before before) {
  std::vector<T> merged(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool takes_right = right < end && (left == middle || before(items[right], items[left]));
        merged[out] = std::move(items[takes_right ? right++ : left++]);
      }
    }
    items.swap(merged);
  }
}

}  // namespace regard::jinja
