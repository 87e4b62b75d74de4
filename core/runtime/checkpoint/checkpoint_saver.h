// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints while training continues: `save` returns at once, and a thread reads the arrays
// from the devices and writes them. All arrays of a checkpoint are of the same step: training waits
// for `reads()` before each launch that writes to a parameter or state (Executor::guard_writes).
// Most of a step only reads them and the update is at its end, so waits are rare. Written bytes
// wait for the disk in the operating system's page cache, which bounds the memory. One save is
// under way at a time; its failure is reported in all processes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/devices/device.h"
#include "core/runtime/checkpoint/checkpoint_store.h"

namespace tessera {

// Device memory that one thread will still read and that other threads may change only after that.
// A checkpoint is written directly from the memory of training. The next step may read it in the
// meantime; its update of an array waits until that array has been read.
class PendingReads {
 public:
  // Registers buffers that will be read in this order. Nothing may be pending.
  void begin(std::vector<DeviceBuffer> buffers);
  void finish_next();  // Marks the first pending buffer as read.
  void finish_all();   // Drops all pending buffers: they will not be read.

  // Returns when nothing pending overlaps `buffer`. Thread-safe.
  void await(const DeviceBuffer& buffer);
  void await_all();
  // "waits for a checkpoint that is being written" if `await` has kept a caller for `least` or
  // longer; else "". A stall probe.
  std::string stalled(std::chrono::milliseconds least) const;
  // Returns how long `await` blocked callers since the last call.
  double take_waited_seconds();

 private:
  using Clock = std::chrono::steady_clock;
  void await_number(std::unique_lock<std::mutex>& lock, size_t number);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<DeviceBuffer> buffers_;
  size_t finished_ = 0;      // How many of buffers_ have been read, from the first.
  int waiting_ = 0;          // How many callers of await() are blocked now.
  Clock::time_point since_;  // Start of the earliest current wait.
  double waited_seconds_ = 0.0;
};

class CheckpointSaver {
 public:
  // Every process of the run has one, and they save together: `save` is called with the same steps
  // in the same order, each with the pieces it owns. Only the writing thread uses `processes`,
  // which has a channel of its own (null: this process is alone); its stall probes also report
  // waits for `reads`. Process 0 removes the files that killed saves left.
  CheckpointSaver(CheckpointStore store, const RetentionPolicy& policy,
                  std::unique_ptr<ProcessGroup> processes = nullptr);
  ~CheckpointSaver();  // Waits for the save, and prints a failure that was not thrown before.

  // Waits for the previous save, whose failure it throws, then starts this one. The arrays must not
  // change while reads() has them pending.
  void save(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays);
  const std::shared_ptr<PendingReads>& reads() const { return reads_; }
  // Returns when no save is under way; throws its failure.
  void wait();

  struct Saved {
    int64_t step = 0;
    int64_t bytes = 0;             // Bytes of the arrays of all processes.
    double seconds = 0.0;          // Time of the writing thread.
    double stall = 0.0;            // Seconds that training waited for it or an earlier save.
    std::vector<int64_t> removed;  // Steps that the policy removed; in process 0.
    std::string remains;           // Why a checkpoint could not be removed; the first time.
  };
  // Returns the saves completed since the last call.
  std::vector<Saved> take_saved();
  // Sets the metric of a step for RetentionPolicy::best.
  void set_metric(int64_t step, double value);

 private:
  void write(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays);
  void join();

  CheckpointStore store_;
  RetentionPolicy policy_;
  std::unique_ptr<ProcessGroup> processes_;
  std::shared_ptr<PendingReads> reads_;
  StallProbes::Registration stall_probe_;  // Reports waits for `reads_`.
  std::thread thread_;
  bool warned_ = false;  // Whether `remains` was reported; used by thread_ only.

  std::mutex mutex_;  // Guards the members below and the store's metrics.
  double blocked_seconds_ = 0.0;
  std::vector<Saved> saved_;
  std::exception_ptr failure_;
};

}  // namespace tessera
