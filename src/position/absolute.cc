// Vectors that are added to embeddings: sinusoidal and learned.
#include "base/check.h"
#include "base/math.h"
#include "regard/position.h"

namespace regard {

int64_t first_position(Sinusoidal layout) noexcept { return layout == Sinusoidal::kTensor2Tensor ? 1 : 0; }

void sinusoidal(Sinusoidal layout, int64_t position, std::span<float> out) {
  const auto dim = static_cast<int64_t>(out.size());
  const bool by_count = layout == Sinusoidal::kMarianNative || layout == Sinusoidal::kTensor2Tensor;
  require(dim >= 2 && dim % 2 == 0, "[sinusoidal] dimension {}; expected an even number of at least 2", dim);
  require(!by_count || dim >= 4, "[sinusoidal] dimension {}; this layout divides by dim / 2 - 1 and needs at least 4", dim);
  const int64_t half = dim / 2;
  for (int64_t j = 0; j < half; ++j) {
    const double exponent = by_count ? static_cast<double>(j) / static_cast<double>(half - 1) : 2.0 * static_cast<double>(j) / static_cast<double>(dim);
    const auto [s, c] = math::sincos(static_cast<double>(position) * math::pow(10000.0, -exponent));
    const bool interleaved = layout == Sinusoidal::kPaper;
    out[static_cast<size_t>(interleaved ? 2 * j : j)] = static_cast<float>(s);
    out[static_cast<size_t>(interleaved ? 2 * j + 1 : half + j)] = static_cast<float>(c);
  }
}

std::span<const float> learned_position(TensorView<const float> table, int64_t position, int64_t offset) {
  require(table.rank == 2 && table.strides[1] == 1, "[learned_position] expected a table [rows, dim] with contiguous rows");
  const int64_t row = position + offset;
  require(position >= 0 && row >= 0 && row < table.shape[0], "[learned_position] position {} is row {} of a table of {} rows", position, row,
          table.shape[0]);
  return {table.at(row), static_cast<size_t>(table.shape[1])};
}

}  // namespace regard
