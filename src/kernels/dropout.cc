#include "kernels/dropout.h"

#include "kernels/registry.h"

namespace regard::kernels {

void dropout_keep_words(const DropoutKey& row, int64_t tile, uint32_t threshold,
                        uint64_t (&words)[kPanelsPerTile]) noexcept {
  kernels().attention->keep_words(row.data(), tile, threshold, words);
}

}  // namespace regard::kernels
