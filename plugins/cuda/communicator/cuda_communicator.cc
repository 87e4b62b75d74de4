// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/cuda_communicator.h"

#include <utility>

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/kernels/peer_reduce.h"

namespace tessera::cuda {
namespace {

CommunicatorOptions checked(CommunicatorOptions options) {
  const int processes = options.transport == nullptr ? 1 : options.transport->size();
  if (processes > 1)
    fail(
        "--device=cuda in {} processes: GPUs of several processes are connected by NCCL, which "
        "this build does not use; run one process with --devices=N for N GPUs of one machine",
        processes);
  if (options.local_devices > kMostPeers)
    fail("--device=cuda: {} GPUs in one process, expected at most {}", options.local_devices,
         kMostPeers);
  return options;
}

}  // namespace

std::unique_ptr<Communicator> make_cuda_communicator(CommunicatorOptions options) {
  return std::make_unique<CudaCommunicator>(std::move(options));
}

CollectiveNeeds cuda_collective_needs(const Graph&, const Node& node) {
  // While an all_reduce reads operands, each GPU writes only the part that only it reads.
  return {.scratch_bytes = 0, .may_overwrite = node.op == &kAllReduceOp};
}

CudaCommunicator::CudaCommunicator(CommunicatorOptions options)
    : Communicator(checked(std::move(options))), host_(Communicator::options()) {
  for (int i = 0; i < local_devices(); ++i) contexts_.push_back(shared_context(i));
  enable_peer_access();
}

void CudaCommunicator::enable_peer_access() {
  for (const auto& self : contexts_) {
    self->make_current();
    for (const auto& peer : contexts_) {
      if (peer == self) continue;
      int can = 0;
      self->check(self->driver().cuDeviceCanAccessPeer(&can, self->device(), peer->device()),
                  "asking whether it can read another GPU's memory");
      if (can == 0)
        fail(
            "--device=cuda: GPU {} ({}) cannot read the memory of GPU {} ({}), which --devices={} "
            "needs; choose GPUs that are connected by NVLink or by one PCIe switch (see "
            "'nvidia-smi topo -p2p r') with CUDA_VISIBLE_DEVICES, or use --devices=1",
            self->ordinal(), self->name(), peer->ordinal(), peer->name(), local_devices());
      const CUresult result = self->driver().cuCtxEnablePeerAccess(peer->handle(), 0);
      if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        self->check(result, "mapping another GPU's memory");
    }
  }
}

std::shared_ptr<PeerGroup> CudaCommunicator::group(const GroupTopology& topology) {
  std::vector<int64_t> devices;
  for (const Member& member : topology.local()) devices.push_back(member.device);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<PeerGroup>& group = groups_[devices];
  if (group) return group;
  auto made = std::make_shared<PeerGroup>();
  made->rendezvous = host_.rendezvous(devices);
  made->slots.resize(devices.size());
  for (size_t i = 0; i < devices.size(); ++i)
    for (auto& event : made->slots[i].events) event = make_cuda_event(context(devices[i]));
  return group = made;
}

std::unique_ptr<Kernel> CudaCommunicator::prepare(int64_t device, const Graph& graph,
                                                  const Node& node) {
  return make_peer_kernel(*this, device, graph, node);
}

}  // namespace tessera::cuda
