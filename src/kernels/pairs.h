// bf16 numbers in pairs, as dot products take them: a dword holds number 2i in its low half and 2i + 1 in its high half. Both
// products of a pair join one sum, that of the second numbers first; kernels/reference/bf16.h says how they are rounded.
#pragma once

#include <cstdint>

namespace regard::kernels {

/// The pairs that numbers fill; an odd last one is beside a 0.
template <class Int>
constexpr Int pairs(Int numbers) noexcept {
  return (numbers + 1) / 2;
}

}  // namespace regard::kernels
