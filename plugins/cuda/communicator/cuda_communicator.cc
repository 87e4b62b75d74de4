// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/cuda_communicator.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "core/runtime/comm/collective_info.h"
#include "plugins/cuda/communicator/nccl.h"
#include "plugins/cuda/communicator/nccl_communicator.h"
#include "plugins/cuda/communicator/peer_communicator.h"

namespace tessera::cuda {
namespace {

[[noreturn]] void fail_in_processes(int processes) {
  constexpr const char* kOneProcess =
      "or run one process with --devices=N for N GPUs of one machine";
  std::string why;
  if (find_nccl(why) != nullptr)
    fail(
        "--device=cuda in {} processes: {}=peer connects the GPUs of one process; unset it, so "
        "that NCCL is used, {}",
        processes, kCollectivesVariable, kOneProcess);
  fail("--device=cuda in {} processes needs NCCL: {}; {}", processes, why, kOneProcess);
}

}  // namespace

Collectives chosen_collectives() {
  std::string why;
  const char* const word = std::getenv(kCollectivesVariable);
  if (word == nullptr) return find_nccl(why) != nullptr ? Collectives::kNccl : Collectives::kPeer;
  if (word == std::string_view("peer")) return Collectives::kPeer;
  if (word != std::string_view("nccl"))
    fail("{}={}: unknown{}; expected peer or nccl", kCollectivesVariable, word,
         did_you_mean(word, {"peer", "nccl"}));
  if (find_nccl(why) == nullptr) fail("--device=cuda: {}=nccl: {}", kCollectivesVariable, why);
  return Collectives::kNccl;
}

std::unique_ptr<Communicator> make_cuda_communicator(CommunicatorOptions options) {
  const int processes = options.transport == nullptr ? 1 : options.transport->size();
  const bool connects = processes > 1 || options.local_devices > 1;
  if (connects && chosen_collectives() == Collectives::kNccl)
    return std::make_unique<NcclCommunicator>(std::move(options));
  if (processes > 1) fail_in_processes(processes);
  return std::make_unique<PeerCommunicator>(std::move(options));
}

CollectiveNeeds cuda_collective_needs(const Graph& graph, const Node& node) {
  // While an all_reduce between peers reads operands, each GPU writes only the part that only it
  // reads; NCCL's may be in place.
  const bool uses_nccl = chosen_collectives() == Collectives::kNccl;
  return {.scratch_bytes = uses_nccl ? nccl_scratch_bytes(read_collective(graph, node)) : 0,
          .may_overwrite = node.op == &kAllReduceOp};
}

}  // namespace tessera::cuda
