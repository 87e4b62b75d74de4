// SPDX-License-Identifier: Apache-2.0
// What kernels are launched with, and which bytes they touch, at sizes of a GPT-2 of 124M weights.
#pragma once

#include <string>
#include <vector>

namespace tessera::cuda {

struct KernelLaunch {
  std::string example;  // "gather and its gradient: bf16[vocab=2048 embed=768], …".
  std::string kernel;
  int blocks = 0, threads = 0, dynamic_shared_bytes = 0;
  double bytes_read = 0, bytes_written = 0;  // Each byte once.
  double flops = 0;                          // Of matrix products; 0 elsewhere.
};

// Runs the examples on a virtual GPU.
std::vector<KernelLaunch> example_launches();

}  // namespace tessera::cuda
