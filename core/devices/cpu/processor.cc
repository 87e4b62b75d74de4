// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

#include <fmt/ranges.h>
#include <hwy/targets.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/seconds.h"
#include "core/devices/cpu/amx_tiles.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"portable", "avx2", "avx512", "avx512_bf16",
                                                    "amx"};

#if defined(__x86_64__)
// Returns bit `bit` of register `index` (a, b, c, d) of a CPUID leaf. __builtin_cpu_supports does
// not know AVX512_BF16 and AMX.
bool cpuid_bit(unsigned leaf, unsigned subleaf, int index, int bit) {
  std::array<unsigned, 4> registers = {};
  if (__get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2],
                        &registers[3]) == 0)
    return false;
  return ((registers[static_cast<size_t>(index)] >> bit) & 1u) != 0;
}

// Requests permission to use AMX tiles from Linux, which every process must do.
bool request_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::vector<CpuLevel> detect() {
  std::vector<CpuLevel> levels = {CpuLevel::kPortable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  const bool bf16 = avx512 && cpuid_bit(7, 1, 0, 5);
  const bool amx = bf16 && cpuid_bit(7, 0, 3, 22) && cpuid_bit(7, 0, 3, 24) && request_tiles();
  if (avx2) levels.push_back(CpuLevel::kAvx2);
  if (avx512) levels.push_back(CpuLevel::kAvx512);
  if (bf16) levels.push_back(CpuLevel::kAvx512Bf16);
  if (amx) levels.push_back(CpuLevel::kAmx);
#endif
  return levels;
}

// Restricts Highway's targets: AVX-512, AVX2 and the baseline (CMakeLists.txt).
void restrict_highway(CpuLevel level) {
  int64_t avx512 = HWY_AVX3 | HWY_AVX3_DL;
#if defined(HWY_AVX3_ZEN4)  // In later versions of Highway.
  avx512 |= HWY_AVX3_ZEN4;
#endif
#if defined(HWY_AVX3_SPR)
  avx512 |= HWY_AVX3_SPR;
#endif
  // One call for all: each call replaces the targets disabled by the last.
  if (level < CpuLevel::kAvx512)
    hwy::DisableTargets(level < CpuLevel::kAvx2 ? avx512 | HWY_AVX2 : avx512);
}

CpuLevel choose() {
  const std::vector<CpuLevel>& levels = machine_levels();
  const CpuLevel level = requested_level().value_or(levels.back());
  if (std::ranges::find(levels, level) == levels.end())
    fail("{}={}: this processor has no {}; its highest level is {}", kLevelVariable,
         level_name(level), level_name(level), level_name(levels.back()));
  restrict_highway(level);
  return level;
}

// Independent accumulators of a loop: enough to hide the latency (at least six cycles for an
// unfused multiplication and addition, two of each per cycle), and few enough for 16 registers.
constexpr int kSums = 12;
constexpr int kWideSums = 16;  // For 32 registers.

// With it, x * factor + term converges to 2: not to infinity or to slow subnormal numbers.
// Volatile, so that the compiler cannot evaluate it.
volatile float factor = 0.5f;
volatile float term = 1.0f;
thread_local volatile float kept = 0.0f;  // Written results cannot be optimized away.

// A loop, and the operations of one round.
struct PeakLoop {
  void (*run)(int64_t rounds) = nullptr;
  double flops = 0.0;
};

using Quad [[gnu::vector_size(16)]] = float;

// Uses fused operations if the baseline has FMA.
void multiply_and_add_quads(int64_t rounds) {
  const float f = factor, t = term;
  const Quad a = {f, f, f, f}, b = {t, t, t, t};
  Quad sums[kSums] = {};
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * a + b;
  }
  for (const Quad& sum : sums) kept = sum[0];
}

#if defined(__x86_64__)

[[gnu::target("avx2,fma")]] void multiply_and_add_256(int64_t rounds) {
  const __m256 a = _mm256_set1_ps(factor), b = _mm256_set1_ps(term);
  __m256 sums[kSums];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
  }
  for (const __m256& sum : sums) kept = _mm256_cvtss_f32(sum);
}

[[gnu::target("avx512f")]] void multiply_and_add_512(int64_t rounds) {
  const __m512 a = _mm512_set1_ps(factor), b = _mm512_set1_ps(term);
  __m512 sums[kWideSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kWideSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, b);
  }
  for (const __m512& sum : sums) kept = _mm512_cvtss_f32(sum);
}

// Sums grow by 1 per round and stay finite.
[[gnu::target("avx512f,avx512bf16")]] void dot_products_of_pairs(int64_t rounds) {
  const __m512 half = _mm512_set1_ps(factor), one = _mm512_set1_ps(term);
  const __m512bh a = _mm512_cvtne2ps_pbh(half, half), b = _mm512_cvtne2ps_pbh(one, one);
  __m512 sums[kWideSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kWideSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  for (const __m512& sum : sums) kept = _mm512_cvtss_f32(sum);
}

// Computes six tiles of 16 x 16 sums, from two tiles of 16 x 32 bf16 zeros. The tiles are released
// at the end, because they make context switches slower.
[[gnu::target("amx-tile,amx-bf16")]] void tile_products(int64_t rounds) {
  configure_tiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_release();
}

#endif  // x86-64

PeakLoop loop_of(DType dtype, CpuLevel level) {
#if defined(__x86_64__)
  if (dtype == DType::kBF16 && level >= CpuLevel::kAmx)
    return {tile_products, 6 * 2.0 * 16 * 16 * 32};
  if (dtype == DType::kBF16 && level >= CpuLevel::kAvx512Bf16)
    return {dot_products_of_pairs, kWideSums * 2.0 * 32};
  if (level >= CpuLevel::kAvx512) return {multiply_and_add_512, kWideSums * 2.0 * 16};
  if (level >= CpuLevel::kAvx2) return {multiply_and_add_256, kSums * 2.0 * 8};
#endif
  static_cast<void>(dtype), static_cast<void>(level);
  return {multiply_and_add_quads, kSums * 2.0 * 4};
}

double seconds_of(const PeakLoop& loop, int64_t rounds) {
  const auto begin = std::chrono::steady_clock::now();
  loop.run(rounds);
  return seconds_since(begin);
}

// Returns the rate of one thread while the others do the same: a warm-up of some milliseconds
// brings the clock frequency to its value under load; then the best of several short runs, at least
// one of which should not be interrupted.
double measure_thread(const PeakLoop& loop) {
  constexpr double kWarmUp = 2e-3, kRun = 3e-4;
  constexpr int kRuns = 8;
  double rate = 0.0, spent = 0.0;
  int64_t rounds = 1000;
  while (spent < kWarmUp) {
    const double seconds = std::max(seconds_of(loop, rounds), 1e-7);
    spent += seconds;
    rounds = std::max<int64_t>(
        1000, static_cast<int64_t>(static_cast<double>(rounds) * std::min(kRun / seconds, 8.0)));
  }
  for (int run = 0; run < kRuns; ++run) {
    const double seconds = std::max(seconds_of(loop, rounds), 1e-7);
    rate = std::max(rate, loop.flops * static_cast<double>(rounds) / seconds);
  }
  return rate;
}

double measure(const PeakLoop& loop, ThreadPool& pool) {
  std::vector<double> rates(static_cast<size_t>(pool.size()));
  pool.run([&](int thread) { rates[static_cast<size_t>(thread)] = measure_thread(loop); });
  double total = 0.0;
  for (const double rate : rates) total += rate;
  const int at_once = std::min(pool.size(), usable_processors());
  return total * at_once / pool.size();
}

}  // namespace

std::string_view level_name(CpuLevel level) { return kNames[static_cast<size_t>(level)]; }

const std::vector<CpuLevel>& machine_levels() {
  static const std::vector<CpuLevel> levels = detect();
  return levels;
}

std::optional<CpuLevel> requested_level() {
  const char* const requested = std::getenv(kLevelVariable.data());
  if (requested == nullptr || *requested == '\0') return std::nullopt;
  const auto name = std::ranges::find(kNames, std::string_view(requested));
  if (name == kNames.end())
    fail("{}={}: expected one of {}{}", kLevelVariable, requested, fmt::join(kNames, ", "),
         did_you_mean(requested, {kNames.begin(), kNames.end()}));
  return static_cast<CpuLevel>(name - kNames.begin());
}

std::string processor_name() {
  std::string text;
#if defined(__x86_64__)
  constexpr unsigned kFirst = 0x80000002u, kLast = 0x80000004u;
  for (unsigned leaf = kFirst; leaf <= kLast; ++leaf) {
    std::array<unsigned, 4> registers = {};
    if (__get_cpuid(leaf, &registers[0], &registers[1], &registers[2], &registers[3]) == 0)
      return "";
    text.append(reinterpret_cast<const char*>(registers.data()), sizeof(registers));
  }
#endif
  text.resize(std::min(text.find('\0'), text.size()));
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

CpuLevel cpu_level() {
  static const CpuLevel level = choose();
  return level;
}

double cpu_peak_flops(DType dtype, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kValid = std::chrono::seconds(1);
  struct Peak {
    double flops = 0.0;
    Clock::time_point measured;
  };
  const PeakLoop loop = loop_of(dtype, cpu_level());
  static std::mutex mutex;
  static std::map<std::pair<double, int>, Peak> peaks;  // By operations of the loop and threads.
  const std::lock_guard<std::mutex> lock(mutex);
  Peak& peak = peaks[{loop.flops, pool.size()}];
  if (peak.flops == 0.0 || Clock::now() - peak.measured > kValid) {
    peak.flops = std::max(peak.flops, measure(loop, pool));
    peak.measured = Clock::now();
  }
  return peak.flops;
}

}  // namespace tessera
