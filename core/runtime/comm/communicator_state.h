// SPDX-License-Identifier: Apache-2.0
// What the collective kernels of one process share: the rendezvous of each group, the progress of
// each device, whether the run was stopped, and the reports of hangs.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/comm/rendezvous.h"
#include "core/runtime/comm/watchdog.h"

namespace tessera {

class CommunicatorState {
 public:
  // The communicator outlives its state.
  explicit CommunicatorState(const Communicator& communicator);
  ~CommunicatorState();

  const Communicator& communicator() const { return communicator_; }

  // The rendezvous of a group's local devices, which are its members in the order of their numbers.
  std::shared_ptr<Rendezvous> rendezvous(const std::vector<int64_t>& group);

  // A local device begins and ends a collective. Beginning throws an Error if the run was stopped.
  void begin_collective(int64_t device, const std::shared_ptr<const CollectiveInfo>& info);
  void end_collective(int64_t device);
  // In its current collective a local device has been waiting for a message from device `other`.
  void note_waiting(int64_t device, int64_t other);
  // Communicator::stalled.
  std::string stalled(std::chrono::milliseconds least) const;

  void count_sent(int64_t device, int64_t bytes);
  int64_t bytes_sent(int64_t device) const;

  void stop(const std::string& reason);
  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
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
    std::shared_ptr<const CollectiveInfo> info;  // Of the current or the last collective.
    int64_t number = -1;                         // Of that collective, counted from 0.
    bool inside = false;
    int64_t awaited = -1;  // The device that it has been waiting for.
    std::chrono::steady_clock::time_point begin;
    std::atomic<int64_t> sent{0};
  };
  static constexpr size_t kPositionsBytes = 2048;
  struct PositionExchange {  // With one other process.
    std::array<char, kPositionsBytes> mine{}, theirs{};
    std::unique_ptr<Request> send, receive;
  };

  int process_of(int64_t device) const;
  bool is_local(int64_t device) const { return process_of(device) == communicator_.process(); }
  DeviceProgress& progress(int64_t device) const;
  std::string position_of(int64_t device) const;  // "waits in collective 36, all_gather over …"
  std::string name_of(int64_t device) const;      // "device 5 (process 1, host b)"
  std::string local_positions() const;            // Of all devices of this process.
  std::string positions_of_process(int process) const;

  const Communicator& communicator_;
  std::vector<std::unique_ptr<DeviceProgress>> progress_;  // By local device.
  mutable std::mutex mutex_;                               // Guards the rest.
  std::map<std::vector<int64_t>, std::shared_ptr<Rendezvous>> rendezvous_by_group_;
  std::string reason_;
  std::vector<std::shared_ptr<PositionExchange>> positions_;  // By process; empty until exchanged.
  std::atomic<bool> stopped_{false};
};

}  // namespace tessera
