// SPDX-License-Identifier: Apache-2.0
// How GPUs are connected: by NCCL, or by copies between the GPUs of one process.
#pragma once

#include <memory>

#include "core/runtime/comm/communicator.h"

namespace tessera::cuda {

enum class Collectives { kPeer, kNccl };

// "peer" or "nccl".
inline constexpr const char* kCollectivesVariable = "TESSERA_CUDA_COLLECTIVES";

// The choice of that variable; by default NCCL if it can be used here. Error for another word, and
// if NCCL is asked for and cannot be used.
Collectives chosen_collectives();

// Makes a communicator of the chosen kind. Error if it cannot connect these GPUs.
std::unique_ptr<Communicator> make_cuda_communicator(CommunicatorOptions options);

// Requirements of the kernels of the chosen kind, for memory planning.
CollectiveNeeds cuda_collective_needs(const Graph& graph, const Node& node);

}  // namespace tessera::cuda
