// The version of these headers. Semantic versioning covers everything under include/regard/.
#pragma once

#include "regard/export.h"

#define REGARD_VERSION_MAJOR 0
#define REGARD_VERSION_MINOR 1
#define REGARD_VERSION_PATCH 0

namespace regard {

/// The version of the library that is running, as "major.minor.patch"; compare it with the macros above to notice a
/// header and a library that do not belong together.
REGARD_API const char* version() noexcept;

}  // namespace regard
