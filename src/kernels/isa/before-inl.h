// What every region needs before it opens: the few headers that kernels may use (freestanding ones, no containers, no I/O)
// and the macros of this directory.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/half.h"
#include "base/math.h"
#include "regard/dtype.h"

// Inside the kernels every helper is part of its caller: a call would spill the accumulators.
#define REGARD_INLINE [[gnu::always_inline]] static inline
#define REGARD_INLINE_MEMBER [[gnu::always_inline]] inline
// A hot loop that must have the registers to itself, called rarely enough for a call not to matter.
#define REGARD_NOINLINE [[gnu::noinline]] static

// Loops of intrinsics must be unrolled by the front end, or the accumulators live in memory.
#if defined(__clang__)
#define REGARD_UNROLL _Pragma("clang loop unroll(full)")
#define REGARD_UNROLL_2 _Pragma("clang loop unroll_count(2)")
#define REGARD_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define REGARD_UNROLL _Pragma("GCC unroll 16")
#define REGARD_UNROLL_2 _Pragma("GCC unroll 2")
#define REGARD_NO_UNROLL _Pragma("GCC unroll 1")
#endif

// Hides where a pointer comes from, so that loads through it are not moved across this line.
#define REGARD_OPAQUE(pointer) __asm__ volatile("" : "+r"(pointer))
