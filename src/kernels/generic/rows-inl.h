// Walking along a row by vectors, the rest by partial loads and stores. Included inside an instruction set's region.

namespace {

// y[i] = f(x[i]) by whole vectors; the rest goes through a partial load and store.
template <class F>
REGARD_INLINE void map(const float* x, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(x + i)));
  if (i < n) store_first(y + i, f(load_first(x + i, static_cast<int>(n - i))), static_cast<int>(n - i));
}
template <class F>
REGARD_INLINE void zip(const float* a, const float* b, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(a + i), load(b + i)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_first(y + i, f(load_first(a + i, rest), load_first(b + i, rest)), rest);
  }
}

// Lanes beyond n load as 0 and add nothing.
REGARD_INLINE F32 load_upto(const float* x, int64_t i, int64_t n) {
  return i + 16 <= n ? load(x + i) : load_first(x + i, static_cast<int>(n - i));
}
REGARD_INLINE void store_upto(float* y, int64_t i, int64_t n, F32 v) {
  if (i + 16 <= n)
    store(y + i, v);
  else
    store_first(y + i, v, static_cast<int>(n - i));
}

}  // namespace
