// What one template may use. Each limit that is reached is an Error(kResourceExhausted) that names it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regard::jinja {

struct Limits {
  size_t max_source_bytes = size_t{256} << 10; ///< length of the template
  int max_nesting = 200;                       ///< of expressions and of statements in the template
  int max_depth = 400;                         ///< of evaluation, macro calls included
  uint64_t max_steps = 10'000'000;             ///< evaluated nodes; long texts and lists cost more than one
  size_t max_output_bytes = size_t{16} << 20;  ///< of the rendered text, and of any one text
  size_t max_items = 1'000'000;                ///< of any one list
  size_t max_range = 100'000;                  ///< of range(), as in the sandbox of Jinja
  int max_value_depth = 64;                    ///< nesting of lists and dicts
  uint64_t max_value_weight = 4'000'000;       ///< values inside one list or dict, counted through nesting
  size_t max_memory_bytes = size_t{256} << 20; ///< everything made in one rendering, freed or not
};

}  // namespace regard::jinja
