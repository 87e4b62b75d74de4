// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/throughput.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/process.h"

namespace tessera {
namespace {

constexpr double kMemory = 0.9;  // Decay of the moving average of step times.

}  // namespace

std::string peak_text(const Device& device) {
  constexpr double kGiga = 1e9;
  return fmt::format("peak {:.0f} GFLOP/s in f32, {:.0f} in bf16",
                     device.peak_flops(DType::kF32) / kGiga,
                     device.peak_flops(DType::kBF16) / kGiga);
}

int64_t devices_at_once(const RunSetting& setting, const ProcessGroup& processes) {
  const int64_t usable = usable_processors();
  const int64_t threads = setting.threads > 0 ? setting.threads : usable;
  // Several processes share the processors; a single one may use all.
  const int64_t processors = processes.size() > 1 ? std::min(usable, threads) : usable;
  const int64_t of_a_device = std::max<int64_t>(1, threads / setting.devices);
  return processes.size() * std::clamp<int64_t>(processors / of_a_device, 1, setting.devices);
}

Throughput::Throughput(int64_t tokens_per_step, const std::map<DType, double>& flops,
                       const Device& device, int64_t devices)
    : tokens_per_step_(tokens_per_step),
      flops_(flops),
      device_(&device),
      devices_(static_cast<double>(devices)) {
  find_ideal();
}

void Throughput::find_ideal() {
  ideal_seconds_ = 0.0;
  for (const auto& [dtype, count] : flops_) {
    const double peak = device_->peak_flops(dtype) * devices_;
    if (peak > 0.0) ideal_seconds_ += count / peak;
  }
}

void Throughput::add_step(double seconds) {
  // The step is faster than the peak: the processor was throttled during calibration.
  if (seconds < ideal_seconds_) find_ideal();
  last_ = seconds;
  smooth_ = smooth_ == 0.0 ? seconds : kMemory * smooth_ + (1.0 - kMemory) * seconds;
}

}  // namespace tessera
