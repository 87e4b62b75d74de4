// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs as NVIDIA describes them: what a prediction of speed starts from where there is no
// GPU (tasks/plan/roofline.h). All figures are from the datasheets; none was measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace tessera {

// Dense multiplications and additions of a multiprocessor in a clock cycle: bf16 on tensor cores
// with f32 sums, f32 on ordinary ones. `capability` is the compute capability, 90 for 9.0.
double operations_per_cycle(int capability, DType dtype);

struct Gpu {
  std::string_view name;   // For the command line.
  std::string_view title;  // "NVIDIA H200 SXM".
  int capability = 0;
  int multiprocessors = 0;
  double hertz = 0.0;             // The clock at which the datasheet's peak is stated.
  double memory_bandwidth = 0.0;  // Bytes per second.
  int64_t memory_bytes = 0;
  // Bytes per second that the GPU sends to others of its machine (NVLink or PCIe) and, by its share
  // of the network, to other machines.
  double link_bandwidth = 0.0, network_bandwidth = 0.0;

  double peak_flops(DType dtype) const {
    return hertz * multiprocessors * operations_per_cycle(capability, dtype);
  }
};

const std::vector<Gpu>& all_gpus();
// Error with the nearest name and all names for an unknown one.
const Gpu& find_gpu(std::string_view name);
// "a100, h100, …".
std::string gpu_names();

}  // namespace tessera
