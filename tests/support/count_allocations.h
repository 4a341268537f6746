// Counts what operator new and the aligned memory of buffers are asked for, for promises that nothing is. For one source of a test
// program, since it defines these functions. The sanitizers bring their own: REGARD_TEST_SANITIZED is defined then, and
// nothing is counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REGARD_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define REGARD_TEST_SANITIZED
#endif
#endif

#ifndef REGARD_TEST_SANITIZED
#include <malloc.h>

namespace {
std::atomic<int64_t> allocations{0};
}
// Not inlined: the compiler would otherwise see malloc meet operator delete and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
extern "C" [[gnu::noinline]] void* aligned_alloc(size_t alignment, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return ::memalign(alignment, size);
}
#endif
