// SPDX-License-Identifier: Apache-2.0
// The communicator of the GPUs of one process: each reads its peers' memory directly, over NVLink
// or PCIe. The host threads of a group meet as those of CPU devices do, and exchange addresses;
// GPUs wait for each other by events alone. A step with such collectives cannot be captured into a
// graph of one GPU, because its stream waits for events of others.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/runtime/comm/cpu_communicator.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// The GPUs of a group. A slot is written by its GPU's thread before a barrier and read by the
// others before the next one. The events are recorded again in each collective: a GPU records one
// before a barrier and its peers enqueue their waits for it after that barrier, before they arrive
// at the next; so no wait sees a later recording.
struct PeerGroup {
  // Points in a stream where the GPU has its operand ready, has reduced its own part, and has read
  // its peers' memory.
  enum Point { kReady, kReduced, kDone, kPoints };
  struct Slot {
    DeviceAddress input, output;
    const CollectiveInfo* info = nullptr;
    std::array<std::unique_ptr<Event>, kPoints> events;
  };
  std::shared_ptr<Rendezvous> rendezvous;
  std::vector<Slot> slots;  // By position in the group.
};

class PeerCommunicator final : public Communicator {
 public:
  // For one process: device i is GPU i of those that the driver shows. Error if the GPUs cannot
  // read each other's memory.
  explicit PeerCommunicator(CommunicatorOptions options);

  std::unique_ptr<Kernel> prepare(int64_t device, const Graph& graph, const Node& node) override;
  void stop(const std::string& reason) override { host_.stop(reason); }
  bool is_stopped() const override { return host_.is_stopped(); }
  std::string stalled(std::chrono::milliseconds least) const override {
    return host_.stalled(least);
  }
  int64_t bytes_sent(int64_t device) const override { return host_.bytes_sent(device); }

  // The rest is for collective kernels.

  CpuCommunicator& host() { return host_; }  // How the devices' threads meet.
  Context& context(int64_t device) { return *contexts_[static_cast<size_t>(device)]; }
  std::shared_ptr<PeerGroup> group(const GroupTopology& topology);

 private:
  void enable_peer_access();

  CpuCommunicator host_;
  std::vector<std::shared_ptr<Context>> contexts_;  // By device.
  std::mutex mutex_;                                // Guards what follows.
  std::map<std::vector<int64_t>, std::shared_ptr<PeerGroup>> groups_;
};

// The kernel of a collective node; defined in peer_kernel.cc. The communicator must outlive it.
// Error for a dtype that cannot be reduced.
std::unique_ptr<Kernel> make_peer_kernel(PeerCommunicator& communicator, int64_t device,
                                         const Graph& graph, const Node& node);

}  // namespace tessera::cuda
