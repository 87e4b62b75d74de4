// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/peer_communicator.h"

#include <utility>

#include "core/base/error.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/kernels/peer_reduce.h"

namespace tessera::cuda {
namespace {

CommunicatorOptions checked(CommunicatorOptions options) {
  CHECK(options.transport == nullptr || options.transport->size() == 1);
  if (options.local_devices > kMostPeers)
    fail("--device=cuda: {} GPUs in one process, expected at most {}", options.local_devices,
         kMostPeers);
  return options;
}

}  // namespace

PeerCommunicator::PeerCommunicator(CommunicatorOptions options)
    : Communicator(checked(std::move(options))), host_(Communicator::options()) {
  for (int i = 0; i < local_devices(); ++i) contexts_.push_back(shared_context(i));
  enable_peer_access();
}

void PeerCommunicator::enable_peer_access() {
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

std::shared_ptr<PeerGroup> PeerCommunicator::group(const GroupTopology& topology) {
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

std::unique_ptr<Kernel> PeerCommunicator::prepare(int64_t device, const Graph& graph,
                                                  const Node& node) {
  return make_peer_kernel(*this, device, graph, node);
}

}  // namespace tessera::cuda
