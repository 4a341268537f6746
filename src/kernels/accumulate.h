// Whether a result of a kernel begins at 0 or at what stands in its place.
#pragma once

namespace regard::kernels {

enum class Accumulate { kOverwrite, kAdd };

}  // namespace regard::kernels
