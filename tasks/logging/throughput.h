// SPDX-License-Identifier: Apache-2.0
// How fast a run goes: tokens a second, the share of the devices' peak (MFU), and the time left.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/backend/backend.h"
#include "core/graph/graph.h"

namespace tessera {

// Multiplications and additions of the matrix products of one step, by the dtype they run in, as
// traced: causal attention counts its lower half, and nothing recomputed is there to count.
std::map<DType, double> model_flops(const Graph& traced);

// "peak 236 GFLOP/s in f32, 473 in bf16": what MFU is measured against, of one device.
std::string peak_text(const Device& device);

class Throughput {
 public:
  // `tokens_per_step` and `flops` are those of all devices together; `device` outlives this.
  // `devices` like this one compute at once: fewer than the run has, where several share a
  // processor.
  Throughput(int64_t tokens_per_step, const std::map<DType, double>& flops, const Device& device,
             int64_t devices);

  void add_step(double seconds);
  double step_seconds() const { return last_; }
  double tokens_per_second() const;  // Of the last step.
  double mfu() const;                // Of the last step; negative if the peak is unknown.
  // The same of the recent past, which wavers less; what the progress line shows.
  double smooth_tokens_per_second() const;
  double smooth_mfu() const;
  double seconds_for(int64_t steps) const;

 private:
  void find_ideal();
  double mfu_of(double seconds) const;
  int64_t tokens_per_step_;
  std::map<DType, double> flops_;
  const Device* device_;
  double devices_ = 1.0;
  double ideal_seconds_ = 0.0;  // Of a step at the peak.
  double last_ = 0.0;
  double smooth_ = 0.0;
};

}  // namespace tessera
