// SPDX-License-Identifier: Apache-2.0
// Device memory that one thread will still read, and that others may change only after that. A
// checkpoint is written directly from the memory of training. The next step may read it in the
// meantime; its update of an array waits until that array has been read.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace tessera {

class PendingReads {
 public:
  // These will be read, in this order. Nothing may be pending.
  void begin(std::vector<DeviceBuffer> buffers);
  void finish_next();  // The first that is still pending has been read.
  void finish_all();   // The rest will not be read.

  // Returns when nothing pending overlaps `buffer`. Thread-safe.
  void await(const DeviceBuffer& buffer);
  void await_all();
  // "waits for a checkpoint that is being written" if `await` has kept a caller for `least` or
  // longer; else "". A stall probe.
  std::string stalled(std::chrono::milliseconds least) const;
  // How long `await` blocked callers since the last call.
  double take_waited_seconds();

 private:
  using Clock = std::chrono::steady_clock;
  void await_number(std::unique_lock<std::mutex>& lock, size_t number);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<DeviceBuffer> buffers_;
  size_t finished_ = 0;      // Of buffers_, from the first.
  int waiting_ = 0;          // Callers now.
  Clock::time_point since_;  // Start of the earliest current wait.
  double waited_seconds_ = 0.0;
};

}  // namespace tessera
