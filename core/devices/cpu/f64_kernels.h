// SPDX-License-Identifier: Apache-2.0
// Who makes the kernels of nodes with f64 elements, for which this folder has none: the reference
// interpreter, which registers itself (core/devices/reference/kernel.cc).
#pragma once

#include <memory>

#include "core/devices/device.h"

namespace tessera {

using F64KernelFactory = std::unique_ptr<Kernel> (*)(const Graph& graph, const Node& node);
F64KernelFactory& f64_kernel_factory();

}  // namespace tessera
