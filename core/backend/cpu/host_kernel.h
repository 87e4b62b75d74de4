// SPDX-License-Identifier: Apache-2.0
// Kernels that are functions of the host: those of CPU devices and of their communicator.
#pragma once

#include <cstddef>
#include <span>

#include "core/backend/backend.h"

namespace tessera {

// LaunchArgs as the host addresses them.
struct HostArgs {
  std::span<const std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  std::byte* scratch = nullptr;
};

// Thread-compatible: one run at a time.
class HostKernel : public Kernel {
 public:
  virtual void run(const HostArgs& args) = 0;
};

// A kernel that a device of the host has prepared; std::bad_cast for any other.
inline HostKernel& host_kernel(Kernel& kernel) { return dynamic_cast<HostKernel&>(kernel); }

}  // namespace tessera
