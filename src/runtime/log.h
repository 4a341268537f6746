// Messages for whoever runs the program. They go to the callback of regard/runtime.h, or nowhere.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "regard/runtime.h"

namespace regard {

/// True when somebody listens: a message that is costly to build need not be built otherwise.
bool log_enabled() noexcept;
void log_message(LogLevel level, std::string_view message);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled()) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace regard
