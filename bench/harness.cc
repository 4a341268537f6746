#include "harness.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "base/aligned_buffer.h"
#include "kernels/registry.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace regard::bench {
namespace {

constexpr double kSampleSeconds = 0.002;
constexpr size_t kFewestSamples = 7;

double seconds_of(Clock clock) {
  timespec t{};
  clock_gettime(clock == Clock::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double once(const std::function<void()>& work, int repeats, Clock clock) {
  const double start = seconds_of(clock);
  for (int i = 0; i < repeats; ++i) work();
  return seconds_of(clock) - start;
}

int repeats_for(const std::function<void()>& work, Clock clock) {
  work();
  int repeats = 1;
  while (once(work, repeats, clock) < kSampleSeconds && repeats < (1 << 24)) repeats *= 2;
  return repeats;
}

Timing summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return {samples[0], samples[n / 2], (samples[3 * n / 4] - samples[n / 4]) / samples[n / 2]};
}

#if defined(__x86_64__)
// Twelve independent chains keep two units of latency four to six busy.
[[gnu::target("avx512f")]] double multiply_adds_512(int n) {
  __m512 a[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) a[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  for (int k = 0; k < n; ++k) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+v"(a[i]) : "v"(x), "v"(y));
  }
  return 12.0 * 16 * n;
}
[[gnu::target("avx512f,avx512bf16")]] double bf16_products_512(int n) {
  __m512 a[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 x = _mm512_set1_ps(1.0f), y = _mm512_set1_ps(1e-3f);
  for (int k = 0; k < n; ++k) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(a[i]) : "v"(x), "v"(y));
  }
  return 16.0 * 32 * n;
}
[[gnu::target("avx2,fma")]] double multiply_adds_256(int n) {
  __m256 a[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) a[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  for (int k = 0; k < n; ++k) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+x"(a[i]) : "x"(x), "x"(y));
  }
  return 12.0 * 8 * n;
}
double multiply_adds_128(int n) {
  __m128 a[10];
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) a[i] = _mm_set1_ps(static_cast<float>(i));
  const __m128 x = _mm_set1_ps(0.999f);
  for (int k = 0; k < n; ++k) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) __asm__ volatile("mulps %1, %0" : "+x"(a[i]) : "x"(x));
  }
  return 5.0 * 4 * n;  // a product and a sum cost two instructions here
}

double measured_ghz() {
  constexpr int kSteps = 100000;
  const Timing t = measure([] {
    long x = 0;
    for (int i = 0; i < kSteps; ++i)
      __asm__ volatile("add $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0" : "+r"(x));
  });
  return 8e-9 * kSteps / t.best;
}
#else
double measured_ghz() { return 0; }
#endif

// Four streams side by side, which keep more of the machine's requests under way than one does: what a core reads at most.
constexpr size_t kStreams = 4;
void read_plain(const uint64_t* p, size_t n) {
  uint64_t sum[kStreams][8] = {};
  const size_t part = n / kStreams;
  for (size_t i = 0; i + 8 <= part; i += 8)
    for (size_t s = 0; s < kStreams; ++s)
      for (size_t j = 0; j < 8; ++j) sum[s][j] ^= p[s * part + i + j];
  __asm__ volatile("" : : "r"(sum) : "memory");
}
#if defined(__x86_64__)
[[gnu::target("avx512f")]] void read_512(const uint64_t* p, size_t n) {
  __m512i sum[kStreams];
  for (auto& x : sum) x = _mm512_setzero_si512();
  const size_t part = n / kStreams;
  for (size_t i = 0; i + 8 <= part; i += 8) {
#pragma GCC unroll 4
    for (size_t s = 0; s < kStreams; ++s) sum[s] = _mm512_xor_si512(sum[s], _mm512_loadu_si512(p + s * part + i));
  }
  for (const auto& x : sum) __asm__ volatile("" : : "v"(x));
}
#endif
void read_all(const uint64_t* p, size_t n) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_512(p, n);
#endif
  read_plain(p, n);
}

constexpr size_t kReadWords = size_t{256} << 17;  // 256 MB
const uint64_t* memory_to_read() {
  static const AlignedBuffer<uint64_t> memory = [] {
    AlignedBuffer<uint64_t> m(kReadWords);
    std::memset(m.data(), 1, kReadWords * 8);
    return m;
  }();
  return memory.data();
}

}  // namespace

double multiply_adds() {
  [[maybe_unused]] constexpr int kSteps = 20000;
#if defined(__x86_64__)
  switch (kernels::kernels().isa) {
    case Isa::kAvx512:
    case Isa::kAvx512Bf16: return 2 * multiply_adds_512(kSteps);
    case Isa::kAvx2: return 2 * multiply_adds_256(kSteps);
    default: return 2 * multiply_adds_128(kSteps);
  }
#else
  return 0;
#endif
}

double bf16_products() {
#if defined(__x86_64__)
  if (kernels::kernels().attention_bf16 != nullptr) return 2 * bf16_products_512(20000);
#endif
  return 0;
}

double read_bytes(size_t bytes) {
  read_all(memory_to_read(), bytes / 8);
  return static_cast<double>(bytes);
}

Timing measure(const std::function<void()>& work, double seconds, Clock clock) { return race({work}, seconds, clock)[0]; }

std::vector<Timing> race(const std::vector<std::function<void()>>& works, double seconds, Clock clock) {
  std::vector<int> repeats;
  for (const auto& work : works) repeats.push_back(repeats_for(work, clock));
  std::vector<std::vector<double>> samples(works.size());
  const double begin = seconds_of(Clock::kWall);
  do {
    for (size_t i = 0; i < works.size(); ++i) samples[i].push_back(once(works[i], repeats[i], clock) / repeats[i]);
  } while (samples[0].size() < kFewestSamples || seconds_of(Clock::kWall) - begin < seconds * static_cast<double>(works.size()));
  std::vector<Timing> timings;
  for (auto& s : samples) timings.push_back(summary(std::move(s)));
  return timings;
}

Ceilings measure_ceilings() {
  Ceilings c;
  c.ghz = measured_ghz();
  const double flops = multiply_adds();
  c.fma_gflops = 1e-9 * flops / measure([] { multiply_adds(); }).best;
  if (const double products = bf16_products(); products > 0)
    c.bf16_gflops = 1e-9 * products / measure([] { bf16_products(); }).best;
  const uint64_t* memory = memory_to_read();
  const double gbytes = 8e-9 * static_cast<double>(kReadWords);
  c.read_gbytes = gbytes / measure([] { read_bytes(8 * kReadWords); }, 0.5).median;
  c.read_gbytes_two = gbytes / measure(
                                   [&] {
                                     std::thread other([&] { read_all(memory + kReadWords / 2, kReadWords / 2); });
                                     read_all(memory, kReadWords / 2);
                                     other.join();
                                   },
                                   0.5, Clock::kWall)
                                   .median;
  constexpr size_t kCachedBytes = size_t{4} << 20;
  c.cached_gbytes = 1e-9 * static_cast<double>(kCachedBytes) / measure([] { read_bytes(kCachedBytes); }).median;
  return c;
}

void print(const Ceilings& c) {
  std::printf("ceilings (%s): %.2f GHz, multiply-add %.1f GF/s (bf16 %.1f) on one thread, read %.1f GB/s on one thread, %.1f on two, "
              "%.1f from 4 MiB\n",
              std::string(isa_name(kernels::kernels().isa)).c_str(), c.ghz, c.fma_gflops, c.bf16_gflops, c.read_gbytes, c.read_gbytes_two, c.cached_gbytes);
}

void say(const std::string& json) {
  std::printf("%s\n", json.c_str());
  std::fflush(stdout);
}

void say_who(const Ceilings& c) {
  std::ostringstream about;
  about << "{\"name\": \"regard\", \"isa\": \"" << isa_name(kernels::kernels().isa) << "\", \"fma_gflops\": " << c.fma_gflops
        << ", \"bf16_gflops\": " << c.bf16_gflops << ", \"read_gbytes\": " << c.read_gbytes << "}";
  say(about.str());
}

void require_answer(bool right, const std::string& what) {
  if (right) return;
  std::fprintf(stderr, "wrong answer: %s\n", what.c_str());
  std::exit(1);
}

void fix_peer_threads(char** argv, int threads) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr && std::getenv("OPENBLAS_NUM_THREADS") != nullptr) return;
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
  setenv("OPENBLAS_NUM_THREADS", std::to_string(threads).c_str(), 0);
  execv("/proc/self/exe", argv);  // on failure the peers use as many threads as they like, and the figures show it
}

}  // namespace regard::bench
