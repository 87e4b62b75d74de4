// SPDX-License-Identifier: Apache-2.0
// The common part of all collective kernels of CPU devices. Local peers read each other's buffers
// between two barriers; processes exchange messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/cpu/stream.h"
#include "core/base/region.h"
#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/communicator_state.h"
#include "core/runtime/comm/watchdog.h"

namespace tessera {

// A device of a collective's group.
struct Member {
  int64_t device = 0;
  int64_t index = 0;     // In the group.
  int64_t position = 0;  // Among the group's devices of its process, by device number.
  int process = 0;
};

// How a collective's group is spread over processes, as seen by one of its devices. For each remote
// device, one device of a process is the leader: it exchanges the process's messages with that
// device, so each byte is sent between two processes once.
class GroupTopology {
 public:
  GroupTopology(const std::vector<int64_t>& group, int64_t device, int64_t devices_per_process);

  const Member& self() const { return self_; }
  // The members of this process, itself included, by position.
  const std::vector<Member>& local() const { return processes_[own_]; }
  // The members of each process that has any, by process and position.
  const std::vector<std::vector<Member>>& processes() const { return processes_; }
  size_t own_process() const { return own_; }  // Index in processes().
  bool spans_processes() const { return processes_.size() > 1; }
  std::vector<Member> remote() const;  // The members of other processes.

  // The leader in process `there` (an index of processes()) for `member` of another process.
  const Member& leader(size_t there, const Member& member) const {
    const std::vector<Member>& members = processes_[there];
    return members[static_cast<size_t>(member.position) % members.size()];
  }
  // The remote devices that this device is the leader for, by process and position.
  const std::vector<Member>& peers() const { return peers_; }
  // The largest number of peers of any member.
  int64_t max_peers() const { return max_peers_; }

 private:
  std::vector<std::vector<Member>> processes_;
  size_t own_ = 0;
  Member self_;
  std::vector<Member> peers_;
  int64_t max_peers_ = 0;
};

// Sends and receives in progress. If the run fails, they are kept until the process ends.
class PendingRequests {
 public:
  PendingRequests() = default;
  ~PendingRequests();
  PendingRequests(const PendingRequests&) = delete;
  PendingRequests& operator=(const PendingRequests&) = delete;

 private:
  friend class CollectiveKernel;
  struct Pending {
    std::shared_ptr<Request> request;
    int64_t device = 0;  // The other one.
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
  // Runs between the barriers at the start and the end of the collective.
  virtual void communicate(const HostArgs& args) = 0;

  const CollectiveInfo& info() const { return *info_; }
  const GroupTopology& topology() const { return topology_; }

  // Waits for the local members. Error if the run was stopped or the timeout has passed.
  void barrier();
  const std::byte* input_of(const Member& local) const { return buffers_of(local).input; }
  const std::byte* output_of(const Member& local) const { return buffers_of(local).output; }
  // Counts bytes that this device copies from a local member as sent by that member.
  void count_copied(const Member& local, int64_t bytes);

  // Messages between this device and a remote one; those of a pair stay in order. An empty one is
  // not sent.
  void send(const Member& to, std::span<const std::byte> bytes, PendingRequests& requests);
  void receive(const Member& from, std::span<std::byte> bytes, PendingRequests& requests);
  // Waits until all requests are done, and clears them. Errors as of barrier().
  void wait(PendingRequests& requests);

  // All-gather: copies the part of each member into `out` of every member. part(index) is the place
  // of a member's part in `out`. source(member) is where a local member's own part is: its place in
  // `array`. Local members have passed a barrier since those were written. `own` points to this
  // device's part, packed.
  using PartOf = std::function<Subarray(int64_t index)>;
  struct Source {
    Subarray part;
    const std::byte* array = nullptr;
  };
  using SourceOf = std::function<Source(const Member& local)>;
  void all_gather_parts(const PartOf& part, const SourceOf& source, const std::byte* own,
                        std::byte* out, std::byte* scratch);

  // The size of one message if scratch holds `buffers` of them; the same on all members.
  int64_t piece_bytes(int64_t buffers) const;

 private:
  const PeerBuffers& buffers_of(const Member& local) const;
  void send_own_part(const Subarray& part, const std::byte* own, PendingRequests& requests);
  void receive_parts(const PartOf& part, std::byte* out, std::byte* scratch);
  void check_same_collective() const;
  int tag(int64_t from, int64_t to) const;

  CommunicatorState& state_;
  int64_t device_;
  std::shared_ptr<const CollectiveInfo> info_;
  int64_t scratch_bytes_;
  GroupTopology topology_;
  std::shared_ptr<Rendezvous> rendezvous_;
  WaitDeadline deadline_;  // Of the current collective.
};

std::unique_ptr<Kernel> make_gather_kernel(CommunicatorState& state, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info);
std::unique_ptr<Kernel> make_exchange_kernel(CommunicatorState& state, int64_t device,
                                             std::shared_ptr<const CollectiveInfo> info);
std::unique_ptr<Kernel> make_reduce_kernel(CommunicatorState& state, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info);

// The kernel of any collective.
std::unique_ptr<Kernel> make_collective_kernel(CommunicatorState& state, int64_t device,
                                               const Graph& graph, const Node& node);

}  // namespace tessera
