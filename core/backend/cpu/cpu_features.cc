// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include <fmt/ranges.h>
#include <hwy/targets.h>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"portable", "avx2", "avx512", "avx512_bf16",
                                                    "amx"};

#if defined(__x86_64__)
// Bit `bit` of register `index` (a, b, c, d) of a CPUID leaf. __builtin_cpu_supports does not know
// AVX512_BF16 and AMX.
bool cpuid_bit(unsigned leaf, unsigned subleaf, int index, int bit) {
  std::array<unsigned, 4> registers = {};
  if (__get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2],
                        &registers[3]) == 0) {
    return false;
  }
  return ((registers[static_cast<size_t>(index)] >> bit) & 1u) != 0;
}

std::string brand() {
  constexpr unsigned kFirst = 0x80000002u, kLast = 0x80000004u;
  std::string text;
  for (unsigned leaf = kFirst; leaf <= kLast; ++leaf) {
    std::array<unsigned, 4> registers = {};
    if (__get_cpuid(leaf, &registers[0], &registers[1], &registers[2], &registers[3]) == 0)
      return "";
    text.append(reinterpret_cast<const char*>(registers.data()), sizeof(registers));
  }
  text.resize(std::min(text.find('\0'), text.size()));
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
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

// Highway targets are AVX-512, AVX2 and the baseline (CMakeLists.txt).
void restrict_highway(CpuLevel level) {
  int64_t avx512 = HWY_AVX3 | HWY_AVX3_DL;
#if defined(HWY_AVX3_ZEN4)  // In later versions of Highway.
  avx512 |= HWY_AVX3_ZEN4;
#endif
#if defined(HWY_AVX3_SPR)
  avx512 |= HWY_AVX3_SPR;
#endif
  if (level < CpuLevel::kAvx512) hwy::DisableTargets(avx512);
  if (level < CpuLevel::kAvx2) hwy::DisableTargets(HWY_AVX2);
}

CpuLevel choose() {
  const std::vector<CpuLevel>& levels = machine_levels();
  const CpuLevel level = requested_level().value_or(levels.back());
  if (std::find(levels.begin(), levels.end(), level) == levels.end()) {
    fail("{}={}: this processor has no {}; its highest level is {}", kLevelVariable,
         level_name(level), level_name(level), level_name(levels.back()));
  }
  restrict_highway(level);
  return level;
}

}  // namespace

std::string_view level_name(CpuLevel level) { return kNames[static_cast<size_t>(level)]; }

const std::vector<CpuLevel>& machine_levels() {
  static const std::vector<CpuLevel> levels = detect();
  return levels;
}

std::optional<CpuLevel> requested_level() {
  const char* const wanted = std::getenv(kLevelVariable.data());
  if (wanted == nullptr || *wanted == '\0') return std::nullopt;
  const auto name = std::find(kNames.begin(), kNames.end(), std::string_view(wanted));
  if (name == kNames.end()) {
    fail("{}={}: expected one of {}{}", kLevelVariable, wanted, fmt::join(kNames, ", "),
         did_you_mean(wanted, {kNames.begin(), kNames.end()}));
  }
  return static_cast<CpuLevel>(name - kNames.begin());
}

std::string processor_name() {
#if defined(__x86_64__)
  return brand();
#else
  return "";
#endif
}

CpuLevel cpu_level() {
  static const CpuLevel level = choose();
  return level;
}

}  // namespace tessera
