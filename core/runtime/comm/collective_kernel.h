// SPDX-License-Identifier: Apache-2.0
// What the kernels of all collectives do alike. Devices of one process lay out their buffers, take
// what they need straight from those of the others, and stay until the others have done the same;
// what goes to other processes are messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/cpu/host_kernel.h"
#include "core/base/region.h"
#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/communicator_state.h"
#include "core/runtime/comm/group_place.h"
#include "core/runtime/comm/patience.h"

namespace tessera {

// Messages under way. Those of a run that failed are kept for ever: they may not be destroyed.
class Mail {
 public:
  Mail() = default;
  ~Mail();
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

 private:
  friend class CollectiveKernel;
  struct Pending {
    std::unique_ptr<Message> message;
    int64_t with = 0;  // A device.
  };
  std::vector<Pending> pending_;
};

class CollectiveKernel : public HostKernel {
 public:
  // The state must outlive the kernel.
  CollectiveKernel(CommunicatorState& state, int64_t device,
                   std::shared_ptr<const CollectiveInfo> info);

  int64_t scratch_bytes() const final { return scratch_bytes_; }
  void run(const HostArgs& args) final;

 protected:
  // From the rendezvous of all local members to when this one has all it needs.
  virtual void communicate(const HostArgs& args) = 0;

  const CollectiveInfo& info() const { return *info_; }
  const GroupPlace& place() const { return place_; }

  // Waits for the members of this process. Throws if the run was stopped or time is up.
  void meet();
  const std::byte* input_of(const Member& local) const { return buffers_of(local).input; }
  const std::byte* output_of(const Member& local) const { return buffers_of(local).output; }
  // What this device takes from a member of its process is what that one sends.
  void count_taken(const Member& local, int64_t bytes);

  // Messages between this device and one of another process; of a pair they keep their order. An
  // empty one is not sent.
  void send(const Member& to, std::span<const std::byte> bytes, Mail& mail);
  void receive(const Member& from, std::span<std::byte> bytes, Mail& mail);
  // Waits for all of them, and leaves none.
  void await(Mail& mail);

  // Brings the part of each member into all their arrays. `part(index)` says where it lies in the
  // array `out`, and `source(member)` where a local member has its own: {part, array}. Local
  // members have met since those were written; packed bytes of this one's part begin at `own`.
  using PartOf = std::function<Subarray(int64_t index)>;
  struct Source {
    Subarray part;
    const std::byte* array = nullptr;
  };
  using SourceOf = std::function<Source(const Member& local)>;
  void share_parts(const PartOf& part, const SourceOf& source, const std::byte* own, std::byte* out,
                   std::byte* scratch);

  // Bytes of one piece of a message where scratch must hold `buffers` of them; `buffers` must be
  // the same on all members.
  int64_t piece_bytes(int64_t buffers) const;

 private:
  const PeerBuffers& buffers_of(const Member& local) const;
  void send_own(const PartOf& part, const std::byte* own, Mail& mail);
  void receive_parts(const PartOf& part, std::byte* out, std::byte* scratch);
  void check_agreement() const;
  uint64_t tag(int64_t from, int64_t to) const;

  CommunicatorState& state_;
  int64_t device_;
  std::shared_ptr<const CollectiveInfo> info_;
  int64_t scratch_bytes_;
  GroupPlace place_;
  std::shared_ptr<Rendezvous> rendezvous_;
  Patience patience_;  // With the collective under way.
};

// One of each family; they are in files of their own.
std::unique_ptr<Kernel> make_gather_kernel(CommunicatorState& state, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info);
std::unique_ptr<Kernel> make_reduce_kernel(CommunicatorState& state, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info);
std::unique_ptr<Kernel> make_exchange_kernel(CommunicatorState& state, int64_t device,
                                             std::shared_ptr<const CollectiveInfo> info);

std::unique_ptr<Kernel> make_collective_kernel(CommunicatorState& state, int64_t device,
                                               const Graph& graph, const Node& node);

}  // namespace tessera
