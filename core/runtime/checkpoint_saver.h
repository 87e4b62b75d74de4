// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints while training goes on: `save` copies the arrays and returns; a thread writes
// them. One save is under way at a time; its failure is never silent, and the same in all
// processes.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/runtime/checkpoint_store.h"

namespace tessera {

class CheckpointSaver {
 public:
  // Every process of the run has one, and they save together: `save` is called with the same steps
  // in the same order, each with the pieces it owns. `processes` are for the writing thread alone
  // (a channel of its own; null: this process is alone). Process 0 removes what killed saves left.
  CheckpointSaver(CheckpointStore store, const RetentionPolicy& policy,
                  std::unique_ptr<Processes> processes = nullptr);
  ~CheckpointSaver();  // Waits; a failure that nobody asked about is printed.

  // Waits for the save before, if need be, whose failure it throws; then copies and returns.
  void save(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays);
  // Returns when nothing is under way; throws a failure.
  void wait();

  struct Saved {
    int64_t step = 0;
    int64_t bytes = 0;             // Of the arrays, of all processes.
    double seconds = 0.0;          // In the writing thread.
    std::vector<int64_t> removed;  // Earlier checkpoints the policy let go; process 0 knows.
  };
  // Those that were completed since this was last asked.
  std::vector<Saved> take_saved();
  // For RetentionPolicy::best.
  void set_metric(int64_t step, double value);
  double take_blocked_seconds();  // How long `save` kept its callers, since last asked.

 private:
  struct Copy {
    CheckpointArray array;
    std::vector<std::byte> bytes;
  };
  void copy(const std::vector<CheckpointArray>& arrays);
  void write(const CheckpointInfo& info);
  void join();

  CheckpointStore store_;
  RetentionPolicy policy_;
  std::unique_ptr<Processes> processes_;
  std::vector<Copy> copies_;  // Kept from save to save, so that memory is paged in once.
  std::thread thread_;
  double blocked_seconds_ = 0.0;

  std::mutex mutex_;  // Of what follows, and of the store's metrics.
  std::vector<Saved> saved_;
  std::exception_ptr failure_;
};

}  // namespace tessera
