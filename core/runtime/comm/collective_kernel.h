// SPDX-License-Identifier: Apache-2.0
// The common part of all collective kernels of CPU devices, which make_collective_kernel makes.
// Local peers read each other's buffers between two barriers; processes exchange messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/region.h"
#include "core/devices/cpu/stream.h"
#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/cpu_communicator.h"

namespace tessera {

// Sends and receives in progress. If the run fails, they are kept until the process ends.
class PendingRequests {
 public:
  ~PendingRequests();
  PendingRequests& operator=(PendingRequests&&) = delete;  // Neither copied nor moved.

 private:
  friend class CollectiveKernel;
  struct Pending {
    std::shared_ptr<Request> request;
    int64_t device = 0;  // The peer's number.
  };
  std::vector<Pending> pending_;
};

class CollectiveKernel : public HostKernel {
 public:
  // The communicator must outlive the kernel.
  CollectiveKernel(CpuCommunicator& communicator, int64_t device,
                   std::shared_ptr<const CollectiveInfo> info);

  int64_t scratch_bytes() const final { return scratch_bytes_; }
  void run(const HostArgs& args) final;

 protected:
  // Does the work between the barriers at the start and the end of the collective.
  virtual void communicate(const HostArgs& args) = 0;

  const CollectiveInfo& info() const { return *info_; }
  const GroupTopology& topology() const { return topology_; }

  // Waits for the local members. Error if the run was stopped or the timeout has passed.
  void barrier();
  const std::byte* input_of(const Member& local) const { return buffers_of(local).input; }
  const std::byte* output_of(const Member& local) const { return buffers_of(local).output; }
  // Counts bytes that this device copies from a local member as sent by that member.
  void count_copied(const Member& local, int64_t bytes);

  // Exchange messages between this device and a remote one; those of a pair stay in order. An empty
  // message is not sent.
  void send(const Member& to, std::span<const std::byte> bytes, PendingRequests& requests);
  void receive(const Member& from, std::span<std::byte> bytes, PendingRequests& requests);
  // Waits until all requests are done, and clears them. Fails as barrier() does.
  void wait(PendingRequests& requests);

  // All-gather: copies the part of each member into `out` of every member, at info().part(index).
  // source(member) is the place of a local member's own part in `array`. Local members have passed
  // a barrier since those were written. `own` points to this device's part, packed.
  struct Source {
    Subarray part;
    const std::byte* array = nullptr;
  };
  using SourceOf = std::function<Source(const Member& local)>;
  void all_gather_parts(const SourceOf& source, const std::byte* own, std::byte* out,
                        std::byte* scratch);

  // Returns the size of one message if scratch holds `buffers` of them; equal on all members.
  int64_t piece_bytes(int64_t buffers) const;

 private:
  const PeerBuffers& buffers_of(const Member& local) const;
  void send_own_part(const std::byte* own, PendingRequests& requests);
  void receive_parts(std::byte* out, std::byte* scratch);
  void check_same_collective() const;
  int tag(int64_t from, int64_t to) const;

  CpuCommunicator& communicator_;
  int64_t device_;
  std::shared_ptr<const CollectiveInfo> info_;
  int64_t scratch_bytes_;
  GroupTopology topology_;
  std::shared_ptr<Rendezvous> rendezvous_;
  WaitDeadline deadline_;  // Deadline of the current collective.
};

// Makes the kernels of reduce_scatter and all_reduce (collective_reduce.cc).
std::unique_ptr<Kernel> make_reduce_kernel(CpuCommunicator& communicator, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info);

}  // namespace tessera
