// SPDX-License-Identifier: Apache-2.0
// The GPUs of the trials of a sweep that run at the same time.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

inline constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

// CUDA_VISIBLE_DEVICES for the trial in one of the places 0, 1, …, each of which has `devices` GPUs
// of its own. `visible`: the variable of this process; empty: all GPUs. Error if it has too few.
std::string gpus_of_place(int64_t place, int64_t devices, const std::string& visible);

}  // namespace tessera
