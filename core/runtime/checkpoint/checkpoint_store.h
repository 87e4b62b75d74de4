// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run: <run>/checkpoints/step_<10 digits>/. Adds one by a rename after every
// byte is on disk, finds the newest, and lets old ones go by a policy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// A checkpoint is kept if any line says so. The newest always is.
struct RetentionPolicy {
  int64_t newest = 3;       // This many; 0: all.
  int64_t every_steps = 0;  // Multiples of it, for good; 0: none.
  bool best = false;        // The one with the lowest metric (CheckpointStore::set_metric).
};

// Which of `steps` (ascending) the policy lets go.
std::vector<int64_t> steps_to_remove(const std::vector<int64_t>& steps,
                                     const RetentionPolicy& policy,
                                     const std::map<int64_t, double>& metrics);

class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path directory);  // Need not exist.

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path path_of(int64_t step) const;
  std::vector<int64_t> steps() const;  // Ascending.
  std::optional<int64_t> newest() const;
  // Error, which lists the steps that have a checkpoint, if this one has none. DamagedCheckpoint,
  // here or when arrays are read, if the checkpoint is damaged or belongs to another step; it names
  // the directory to remove, because going back to an earlier one is the user's decision.
  Checkpoint open(int64_t step) const;
  // Takes a checkpoint out of the list; it is kept under the name returned.
  std::filesystem::path set_aside(int64_t step) const;

  // Writes a checkpoint and gives it its name; one of the same step is replaced. Every process of
  // the run calls it, each with the pieces it owns; process 0 adds the index and does the renaming
  // when all have written. If anything fails anywhere, all of them throw the same Error, every
  // earlier checkpoint is as it was, and nothing else is left. Returns the bytes of all arrays.
  // `reads` is told of each array that was read (write_checkpoint_shard).
  int64_t add(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays,
              ProcessGroup& processes, PendingReads* reads = nullptr) const;
  // The same of a process that is alone.
  int64_t add(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays) const;

  // An eval's result at a step, for RetentionPolicy::best.
  void set_metric(int64_t step, double value) { metrics_[step] = value; }
  // The steps of this directory that the policy lets go.
  std::vector<int64_t> outdated(const RetentionPolicy& policy) const;
  void remove(int64_t step) const;

 private:
  std::filesystem::path directory_;
  std::map<int64_t, double> metrics_;
};

}  // namespace tessera
