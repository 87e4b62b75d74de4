// SPDX-License-Identifier: Apache-2.0
// A kernel for any node, by the reference interpreter: all launches of a reference device, and
// those of a CPU device that have f64 elements.
#pragma once

#include <cstdint>
#include <memory>

#include "core/devices/device.h"

namespace tessera {

struct ReferenceDeviceOptions {
  int64_t scratch_bytes = 0;  // Requested by every kernel, and overwritten with arbitrary values.
  bool may_overwrite = true;  // Whether an elementwise result may overwrite an operand of its type.
};

std::unique_ptr<Kernel> make_reference_kernel(const Graph& graph, const Node& node,
                                              const ReferenceDeviceOptions& options = {});

}  // namespace tessera
