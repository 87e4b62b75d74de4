// SPDX-License-Identifier: Apache-2.0
// Memory that one thread is still to read, and that others may change only when it has: a
// checkpoint is written from the very bytes that training works on. A step reads them meanwhile;
// its update of an array waits until that array is written.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tessera {

class PendingReads {
 public:
  // These will be read, in this order. Nothing may be pending.
  void begin(std::vector<std::span<const std::byte>> spans);
  void finish_next();  // The first that is still pending was read.
  void finish_all();   // Nothing more will be read.

  // Returns when nothing pending overlaps `bytes`, or nothing is pending at all. Any thread.
  void await(std::span<const std::byte> bytes);
  void await_all();
  // "waits for a checkpoint that is being written" if `await` has kept a caller for `least` or
  // longer; else "". A stall probe.
  std::string stalled(std::chrono::milliseconds least) const;
  // How long `await` kept any caller since last asked.
  double take_waited_seconds();

 private:
  using Clock = std::chrono::steady_clock;
  void await_number(std::unique_lock<std::mutex>& lock, size_t number);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::span<const std::byte>> spans_;
  size_t finished_ = 0;      // Of spans_, from the first.
  int waiting_ = 0;          // Callers now.
  Clock::time_point since_;  // When the first of them came.
  double waited_seconds_ = 0.0;
};

}  // namespace tessera
