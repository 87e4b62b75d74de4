// SPDX-License-Identifier: Apache-2.0
// What the collectives of one process share: where its devices meet, where each of them is, and
// whether the run has been stopped.
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
#include "core/runtime/comm/patience.h"
#include "core/runtime/comm/rendezvous.h"

namespace tessera {

class CommunicatorState {
 public:
  explicit CommunicatorState(CommunicatorOptions options);
  ~CommunicatorState();

  const CommunicatorOptions& options() const { return options_; }
  Transport* transport() const { return options_.transport.get(); }
  int process() const { return transport() != nullptr ? transport()->rank() : 0; }
  int num_processes() const { return transport() != nullptr ? transport()->size() : 1; }
  int64_t first_device() const { return process() * options_.local_devices; }
  int process_of(int64_t device) const { return static_cast<int>(device / options_.local_devices); }
  bool is_local(int64_t device) const { return process_of(device) == process(); }

  // Where the devices of a group that are in this process meet, in the order of their numbers.
  std::shared_ptr<Rendezvous> rendezvous(const std::vector<int64_t>& group);

  // A device of this process begins and ends a collective; begin() returns the collective's number
  // and throws if the run was stopped.
  int64_t begin(int64_t device, const std::shared_ptr<const CollectiveInfo>& info);
  void end(int64_t device);
  // In its collective it waits for a message of `other`, and not only for a moment.
  void note_waiting(int64_t device, int64_t other);
  // Communicator::stalled.
  std::string stalled(std::chrono::milliseconds least) const;

  void count_sent(int64_t device, int64_t bytes);
  int64_t bytes_sent(int64_t device) const;

  void stop(const std::string& reason);
  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
  [[noreturn]] void fail_stopped() const;
  // Tells the other processes where this one's devices are, and hears the same from them: for the
  // report of a collective whose time is nearly up. Once in a run; it does not wait.
  void tell_others();
  // With a report: `missing` are the devices that this one waits for in its collective.
  [[noreturn]] void fail_timed_out(int64_t device, const std::vector<int64_t>& missing,
                                   const Patience& patience) const;

 private:
  struct Record {
    mutable std::mutex mutex;
    std::shared_ptr<const CollectiveInfo> info;  // Of the collective it is in, or was in last.
    int64_t number = -1;                         // That collective's; counted from 0.
    bool inside = false;
    int64_t awaited = -1;  // The device it waits for, once that takes long.
    std::chrono::steady_clock::time_point begin;
    std::atomic<int64_t> sent{0};
  };
  // Between this process and another, told once.
  static constexpr size_t kTidingsBytes = 2048;
  struct Tidings {
    std::array<char, kTidingsBytes> mine{}, theirs{};
    std::unique_ptr<Message> sent, received;
  };

  Record& record(int64_t device) const;
  std::string where_is(int64_t device) const;  // "waits in collective 36, all_gather over …"
  std::string name_of(int64_t device) const;   // "device 5 (process 1, host b)"
  std::string positions() const;               // Of all devices of this process.
  std::string answer_of(int process) const;    // What it has told, or that it has told nothing.

  CommunicatorOptions options_;
  std::vector<std::unique_ptr<Record>> records_;  // Of this process's devices.
  mutable std::mutex mutex_;                      // Of what follows.
  std::map<std::vector<int64_t>, std::shared_ptr<Rendezvous>> rendezvous_by_group_;
  std::string reason_;
  std::vector<std::unique_ptr<Tidings>> tidings_;  // By process; empty until told.
  std::atomic<bool> stopped_{false};
};

}  // namespace tessera
