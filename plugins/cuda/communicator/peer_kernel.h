// SPDX-License-Identifier: Apache-2.0
// The collectives of GPUs that read each other's memory.
#pragma once

#include <memory>

#include "plugins/cuda/communicator/cuda_communicator.h"

namespace tessera::cuda {

// The kernel of a collective node. The communicator must outlive it. Error for a dtype that cannot
// be reduced.
std::unique_ptr<Kernel> make_peer_kernel(CudaCommunicator& communicator, int64_t device,
                                         const Graph& graph, const Node& node);

}  // namespace tessera::cuda
