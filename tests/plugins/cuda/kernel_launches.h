// SPDX-License-Identifier: Apache-2.0
// Launch sizes of kernels, and the bytes that they read and write, at the sizes of GPT-2 124M.
#pragma once

#include <string>
#include <vector>

namespace tessera::cuda {

struct KernelLaunch {
  std::string example;  // "gather and its gradient: bf16[vocab=2048 embed=768], …".
  std::string kernel;
  int blocks = 0, threads = 0, dynamic_shared_bytes = 0;
  double bytes_read = 0, bytes_written = 0;  // Each byte is counted once.
  double flops = 0;                          // FLOPs of matrix products; otherwise 0.
};

// Runs the examples on a virtual GPU.
std::vector<KernelLaunch> example_launches();

}  // namespace tessera::cuda
