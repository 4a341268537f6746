// Chat templates of this library, for model files that bring none.
#pragma once

#include <span>
#include <string_view>

namespace regard {

struct NamedTemplate {
  std::string_view name;
  std::string_view source;
};

/// All of them, by name.
std::span<const NamedTemplate> named_templates() noexcept;

}  // namespace regard
