// The floating-point control word: a caller may have turned on flush-to-zero or another rounding mode, and the bits of a
// result must not depend on that. Every task runs under the default word; the caller gets its own back.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace regard {

/// Sets the default word (round to nearest even, denormals kept, exceptions masked) and restores the old one at the end.
class FpControlScope {
 public:
  FpControlScope() noexcept : saved_(read()) { set_default(); }
  ~FpControlScope() { write(saved_); }
  FpControlScope(const FpControlScope&) = delete;
  FpControlScope& operator=(const FpControlScope&) = delete;

  /// Sets the default word if it is not set; costs a few cycles when it is.
  static void set_default() noexcept {
    if ((read() & ~kStickyFlags) != kDefault) write(kDefault);
  }

#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kDefault = 0x1F80;     // MXCSR after reset: all exceptions masked, nearest even, no FTZ, no DAZ
  static constexpr Word kStickyFlags = 0x003F;  // "has happened" bits, which arithmetic sets and nobody reads
  static Word read() noexcept { return _mm_getcsr(); }
  static void write(Word word) noexcept { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kDefault = 0;
  static constexpr Word kStickyFlags = 0;  // they live in a register of their own (FPSR)
  static Word read() noexcept {
    Word word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) noexcept { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = uint32_t;
  static constexpr Word kDefault = 0;
  static constexpr Word kStickyFlags = 0;
  static Word read() noexcept { return kDefault; }
  static void write(Word) noexcept {}
#endif

 private:
  Word saved_;
};

}  // namespace regard
