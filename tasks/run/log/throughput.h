// SPDX-License-Identifier: Apache-2.0
// The speed of a run: tokens per second, model FLOP/s utilisation (MFU), and the time left.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/dtype.h"
#include "core/devices/device.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// "peak 236 GFLOP/s in f32, 473 in bf16": the peak of one device, the reference of MFU.
std::string peak_text(const Device& device);

// How many devices of the run compute at the same time, given that those of a process share its
// threads.
int64_t devices_at_once(const RunSetting& setting, const ProcessGroup& processes);

class Throughput {
 public:
  // `tokens_per_step` and `flops` are totals of all devices; `device` outlives this. `devices`: how
  // many compute at the same time, fewer than the run has if several share a processor.
  Throughput(int64_t tokens_per_step, const std::map<DType, double>& flops, const Device& device,
             int64_t devices);

  void add_step(double seconds);
  // Figures of the last step; the MFU is negative if the peak is unknown.
  double step_seconds() const { return last_; }
  double tokens_per_second() const { return tokens_per_second_of(last_); }
  double mfu() const { return mfu_of(last_); }
  // Moving averages, for the progress line.
  double smooth_tokens_per_second() const { return tokens_per_second_of(smooth_); }
  double smooth_mfu() const { return mfu_of(smooth_); }
  double seconds_for(int64_t steps) const { return smooth_ * static_cast<double>(steps); }

 private:
  void find_ideal();
  double tokens_per_second_of(double seconds) const {
    return seconds > 0.0 ? static_cast<double>(tokens_per_step_) / seconds : 0.0;
  }
  double mfu_of(double seconds) const {
    return ideal_seconds_ > 0.0 && seconds > 0.0 ? ideal_seconds_ / seconds : -1.0;
  }
  int64_t tokens_per_step_;
  std::map<DType, double> flops_;
  const Device* device_;
  double devices_ = 1.0;
  double ideal_seconds_ = 0.0;  // Time of a step at peak FLOP/s.
  double last_ = 0.0;
  double smooth_ = 0.0;
};

}  // namespace tessera
