// SPDX-License-Identifier: Apache-2.0
// The communicator of CPU devices: shared memory within a process, a transport between processes.
#pragma once

#include <memory>

#include "core/runtime/comm/communicator.h"

namespace tessera {

std::unique_ptr<Communicator> make_cpu_communicator(CommunicatorOptions options);

// What memory planning needs to know about its kernels.
CollectiveNeeds cpu_collective_needs(const Graph& graph, const Node& node);

}  // namespace tessera
