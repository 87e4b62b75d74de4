// SPDX-License-Identifier: Apache-2.0
// Properties of GPUs: the limits of each compute capability (CUDA programming guide, "Technical
// specifications per compute capability"), and the data sheet of one GPU that has it (A100, RTX
// 3090, RTX 4090, H100, B200, RTX 5090).
#pragma once

#include <cstdint>

namespace tessera::virtual_gpu {

struct GpuKind {
  uint64_t capability;
  int multiprocessors;
  int shared_of_processor;  // KiB. A block may have one less.
  int threads_of_processor, blocks_of_processor;
  int clock_mhz, memory_mhz, bus_bits, l2_mib;

  int shared_of_block() const { return (shared_of_processor - 1) << 10; }  // Bytes.
};

inline constexpr GpuKind kGpuKinds[] = {{80, 108, 164, 2048, 32, 1410, 1593, 5120, 40},
                                        {86, 82, 100, 1536, 16, 1695, 9751, 384, 6},
                                        {89, 128, 100, 1536, 24, 2520, 10501, 384, 72},
                                        {90, 132, 228, 2048, 32, 1980, 2619, 5120, 50},
                                        {100, 148, 228, 2048, 32, 1965, 3996, 8192, 126},
                                        {120, 170, 100, 1536, 24, 2407, 14001, 512, 96}};
inline constexpr int kSharedDefault = 48 << 10;  // Bytes per block without an opt-in.
inline constexpr int kSharedReserved = 1 << 10;  // Bytes per block.
inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kRegistersOfProcessor = 65536;  // Also the limit of a block.

// The newest kind up to this capability, or the oldest.
constexpr const GpuKind& gpu_kind(uint64_t capability) {
  const GpuKind* found = kGpuKinds;
  for (const GpuKind& kind : kGpuKinds)
    if (kind.capability <= capability) found = &kind;
  return *found;
}

}  // namespace tessera::virtual_gpu
