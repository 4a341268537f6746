// REGARD_API marks what the shared library exports; everything else stays hidden.
#pragma once

#if defined(__GNUC__)
#define REGARD_API __attribute__((visibility("default")))
#else
#define REGARD_API
#endif
