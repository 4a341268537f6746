#include "format/tensor_info.h"

#include <fmt/format.h>

namespace regard {

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace regard
