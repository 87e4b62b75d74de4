// SPDX-License-Identifier: Apache-2.0
#include "core/backend/gpu.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12;
constexpr int64_t kGigabyte = 1'000'000'000;

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Gpu& gpu : all_gpus()) result.emplace_back(gpu.name);
  return result;
}

}  // namespace

// Machines of eight SXM GPUs have a network card per GPU: 200 Gbit/s with A100, 400 with the later
// ones. RTX cards have no NVLink: PCIe 4.0 with 16 lanes, and a network of 100 Gbit/s for four.
const std::vector<Gpu>& all_gpus() {
  static const std::vector<Gpu> gpus = {{"a100", "NVIDIA A100 SXM 80 GB", 80, 108, 1.41 * kGiga,
                                         2.039 * kTera, 80 * kGigabyte, 300 * kGiga, 25 * kGiga},
                                        {"h100", "NVIDIA H100 SXM", 90, 132, 1.83 * kGiga,
                                         3.35 * kTera, 80 * kGigabyte, 450 * kGiga, 50 * kGiga},
                                        {"h200", "NVIDIA H200 SXM", 90, 132, 1.83 * kGiga,
                                         4.8 * kTera, 141 * kGigabyte, 450 * kGiga, 50 * kGiga},
                                        {"b200", "NVIDIA B200 SXM", 100, 148, 1.85 * kGiga,
                                         8.0 * kTera, 180 * kGigabyte, 900 * kGiga, 50 * kGiga},
                                        {"rtx4090", "NVIDIA RTX 4090", 89, 128, 2.52 * kGiga,
                                         1.008 * kTera, 24 * kGigabyte, 32 * kGiga, 3.125 * kGiga}};
  return gpus;
}

// From the datasheets' peaks, divided by multiprocessors and clock: A100 312 TFLOP/s /
// (108 · 1.41 GHz), H100 SXM 989 / (132 · 1.83), B200 2250 / (148 · 1.85), RTX 4090 165 /
// (128 · 2.52).
double operations_per_cycle(int capability, DType dtype) {
  if (dtype != DType::kBF16) return capability == 80 ? 128 : 256;
  if (capability == 80) return 2048;
  if (capability >= 90 && capability < 100) return 4096;
  return capability >= 100 && capability < 120 ? 8192 : 512;
}

const Gpu& find_gpu(std::string_view name) {
  const auto found = std::ranges::find(all_gpus(), name, &Gpu::name);
  if (found == all_gpus().end())
    fail("--hardware={}: unknown GPU{}; expected one of {}", name, did_you_mean(name, names()),
         gpu_names());
  return *found;
}

std::string gpu_names() { return fmt::format("{}", fmt::join(names(), ", ")); }

}  // namespace tessera
