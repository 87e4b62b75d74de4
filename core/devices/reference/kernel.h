// SPDX-License-Identifier: Apache-2.0
// A kernel for any node, by the reference interpreter: all launches of a reference device, and
// those of a CPU device that have f64 elements.
#pragma once

#include <memory>

#include "core/devices/device.h"
#include "core/devices/reference/device.h"

namespace tessera {

std::unique_ptr<Kernel> make_reference_kernel(const Graph& graph, const Node& node,
                                              const ReferenceDeviceOptions& options = {});

// Whether an operand or a result is f64.
bool has_f64(const Graph& graph, const Node& node);

}  // namespace tessera
