// SPDX-License-Identifier: Apache-2.0
// The communicator of CPU devices: shared memory within a process, a transport between processes.
// Its collective kernels (collective_kernel.h) share the rendezvous of each group, the progress of
// each device, whether the run was stopped, and the reports of hangs.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/comm/transport.h"

namespace tessera {

// The buffers of a device in the current collective.
struct PeerBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  const CollectiveInfo* info = nullptr;
};

// A barrier of the devices of one process that take part in a collective. Between two barriers the
// devices read each other's buffers. Waiting threads sleep in the kernel, since there may be more
// devices than processors.
class Rendezvous {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  enum class Outcome { kComplete, kStopped, kTimedOut };

  // Waiting threads spin for `spin` before they sleep; useful if each has a processor.
  Rendezvous(int members, std::chrono::microseconds spin);

  int members() const { return static_cast<int>(members_.size()); }
  // Written by the member before it arrives; read by the others between the barriers.
  PeerBuffers& buffers(int member) { return members_[static_cast<size_t>(member)].buffers; }

  // One barrier is an arrive() and then any number of wait()s, until one returns kComplete: all
  // members have arrived.
  using Phase = uint32_t;
  Phase arrive(int member);
  Outcome wait(Phase phase, Deadline deadline) const;
  // Makes all current and later waits return kStopped.
  void stop();
  // Returns how often the member has arrived.
  uint64_t arrivals(int member) const;

 private:
  struct alignas(64) Member {
    PeerBuffers buffers;
    std::atomic<uint64_t> arrivals{0};
  };
  static constexpr uint32_t kStop = 1;  // A bit of word_; the others count completed barriers.

  std::vector<Member> members_;
  std::chrono::microseconds spin_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> word_{0};
};

class CpuCommunicator final : public Communicator {
 public:
  explicit CpuCommunicator(CommunicatorOptions options);
  ~CpuCommunicator() override;

  std::unique_ptr<Kernel> prepare(int64_t device, const Graph& graph, const Node& node) override;
  void stop(const std::string& reason) override;
  bool is_stopped() const override { return stopped_.load(std::memory_order_acquire); }
  std::string stalled(std::chrono::milliseconds least) const override;
  int64_t bytes_sent(int64_t device) const override;

  // Functions for collective kernels only:

  // The rendezvous of a group's local devices, which are its members in the order of their numbers.
  std::shared_ptr<Rendezvous> rendezvous(const std::vector<int64_t>& group);
  // A local device begins and ends a collective. Beginning throws an Error if the run was stopped.
  void begin_collective(int64_t device, const std::shared_ptr<const CollectiveInfo>& info);
  void end_collective(int64_t device);
  // Two parts of begin_collective(), for a device that runs collectives later than its thread
  // enqueues them: the thread joins and gets the collective's number, and the device notes its
  // position when it gets there.
  int64_t join_collective(int64_t device);
  // Forgets the last `count` collectives that the thread has joined: they will not be run.
  void forget_collectives(int64_t device, int64_t count);
  void note_position(int64_t device, const std::shared_ptr<const CollectiveInfo>& info,
                     int64_t number, bool inside);
  // Records the devices that a local device has been waiting for in its current collective.
  void note_waiting(int64_t device, const std::vector<int64_t>& others);
  // Returns whether a device is inside a collective, as far as this process knows; of devices of
  // other processes it knows only after exchange_positions().
  bool is_inside(int64_t device) const;
  void count_sent(int64_t device, int64_t bytes);
  // Waits at one barrier of the local members of a group. Error if the run was stopped or the
  // timeout has passed.
  void barrier(Rendezvous& rendezvous, const GroupTopology& topology, WaitDeadline& deadline);
  [[noreturn]] void fail_stopped() const;
  // Sends the positions of this process's devices to the other processes and posts receives of
  // theirs, for the report of a collective that has nearly timed out. Only the first call does so.
  void exchange_positions();
  // Throws the report; `missing` are the devices that `device` waits for.
  [[noreturn]] void fail_timed_out(int64_t device, const std::vector<int64_t>& missing,
                                   const WaitDeadline& deadline) const;

 private:
  struct DeviceProgress {
    mutable std::mutex mutex;
    std::shared_ptr<const CollectiveInfo> info;  // The current or the last collective.
    int64_t number = -1;                         // Its number, counted from 0.
    bool inside = false;
    std::vector<int64_t> awaited;  // The devices that it has been waiting for.
    int64_t joined = 0;  // Number of collectives joined; used by the device's thread alone.
    std::chrono::steady_clock::time_point begin;
    std::atomic<int64_t> sent{0};
  };
  static constexpr size_t kPositionsBytes = 2048;
  struct PositionExchange {  // With one other process.
    std::array<char, kPositionsBytes> mine{}, theirs{};
    std::unique_ptr<Request> send, receive;
  };

  int process_of(int64_t device) const { return static_cast<int>(device / local_devices()); }
  bool is_local(int64_t device) const { return process_of(device) == process(); }
  DeviceProgress& progress(int64_t device) const;
  std::string position_of(int64_t device) const;  // "waits in collective 36, all_gather over …"
  std::string name_of(int64_t device) const;      // "device 5 (process 1, host b)"
  std::string local_positions() const;            // Positions of all devices of this process.
  // Returns the report that another process has sent; "" if none yet.
  std::string report_of(int process) const;
  std::string positions_of_process(int process) const;

  std::vector<std::unique_ptr<DeviceProgress>> progress_;  // By local device.
  mutable std::mutex mutex_;                               // Guards the members below.
  std::map<std::vector<int64_t>, std::shared_ptr<Rendezvous>> rendezvous_by_group_;
  std::string reason_;
  std::vector<std::shared_ptr<PositionExchange>> positions_;  // By process; empty until exchanged.
  std::atomic<bool> stopped_{false};
};

// Makes the kernel of any collective; defined with the kernels, in collective_kernel.cc.
std::unique_ptr<Kernel> make_collective_kernel(CpuCommunicator& communicator, int64_t device,
                                               const Graph& graph, const Node& node);

std::unique_ptr<Communicator> make_cpu_communicator(CommunicatorOptions options);

// Returns what memory planning needs to know about the kernels of CPU devices.
CollectiveNeeds cpu_collective_needs(const Graph& graph, const Node& node);

}  // namespace tessera
