// Plausible sizes of a model. A file that claims more is refused before anything is allocated for it.
#pragma once

#include <cstdint>

namespace regard::model {

inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = 65536;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;    ///< hidden and feed-forward size
inline constexpr int64_t kMaxVocab = int64_t{1} << 22;
inline constexpr int64_t kMaxContext = int64_t{1} << 31;

}  // namespace regard::model
