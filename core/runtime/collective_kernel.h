// SPDX-License-Identifier: Apache-2.0
// The kernels of collectives over shared memory. Each device lays out its buffers, takes what it
// needs straight from those of the others, and stays until they have done the same.
#pragma once

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "core/runtime/fabric_state.h"

namespace tessera {

// The state must outlive the kernel.
std::unique_ptr<Kernel> make_collective_kernel(FabricState& state, int64_t device,
                                               const Graph& graph, const Node& node);

}  // namespace tessera
