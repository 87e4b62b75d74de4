// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run: <run>/checkpoints/step_<10 digits>/. Adds a checkpoint by a rename when
// every byte is on disk, finds the newest, and removes old ones by a policy. In an object store a
// step exists if it has its index table, which is written last and removed first.
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

// A checkpoint is kept if any of these rules keeps it. The newest is always kept.
struct RetentionPolicy {
  int64_t newest = 3;       // How many of the newest to keep; 0: all.
  int64_t every_steps = 0;  // Keeps multiples of it forever; 0: none.
  bool best = false;        // Keeps the one with the lowest metric (set_metric()).
};

// Returns those of `steps` (ascending) that the policy removes.
std::vector<int64_t> steps_to_remove(const std::vector<int64_t>& steps,
                                     const RetentionPolicy& policy,
                                     const std::map<int64_t, double>& metrics);

// A file in the local copy of a run that is in an object store: the run's URL.
inline constexpr const char* kRunUrlName = "run.url";
// Returns the run's URL if `directory` is such a local copy, else `directory`.
std::filesystem::path place_of_run(const std::filesystem::path& directory);

class CheckpointStore {
 public:
  // A directory, which need not exist, or a URL. That of a run which has kRunUrlName is at that
  // URL; the directory then has shards until they are uploaded.
  explicit CheckpointStore(std::filesystem::path directory);

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path path_of(int64_t step) const;
  std::vector<int64_t> steps() const;  // Ascending.
  std::optional<int64_t> newest() const;
  // Error with the steps that have a checkpoint if this step has none. DamagedCheckpoint, here or
  // when arrays are read, if the checkpoint is damaged or belongs to another step; it names the
  // directory to remove, because returning to an earlier checkpoint is the user's decision.
  Checkpoint open(int64_t step) const;
  // Renames a checkpoint so that it is no longer listed; returns its new path.
  std::filesystem::path set_aside(int64_t step) const;

  // Writes a checkpoint; one of the same step is replaced. Every process of the run calls it with
  // the pieces it owns. When all have written, process 0 adds the index and renames the directory.
  // If anything fails in any process, all throw the same Error, earlier checkpoints are unchanged,
  // and nothing else is left. Returns the bytes of all arrays. `on_read` is as in
  // write_checkpoint_shard().
  int64_t add(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays,
              ProcessGroup& processes, const std::function<void()>& on_read = {}) const;

  // Records the result of an evaluation at a step, for RetentionPolicy::best.
  void set_metric(int64_t step, double value) { metrics_[step] = value; }
  // Returns the steps of this directory that the policy removes.
  std::vector<int64_t> outdated(const RetentionPolicy& policy) const;
  // Returns what remains and why, or "". It may be removed later, together with the files of killed
  // saves (remove_temporaries), or as a step that the policy still removes.
  std::string remove(int64_t step) const;
  // Removes what killed saves left; the caller is the only writer.
  void remove_unfinished() const;

 private:
  std::vector<ShardBytes> add_locally(const CheckpointInfo& info,
                                      const std::vector<CheckpointArray>& arrays,
                                      ProcessGroup& processes,
                                      const std::function<void()>& on_read) const;
  std::vector<ShardBytes> upload(const CheckpointInfo& info,
                                 const std::vector<CheckpointArray>& arrays,
                                 ProcessGroup& processes,
                                 const std::function<void()>& on_read) const;

  std::filesystem::path directory_;  // A URL in an object store.
  std::filesystem::path local_;
  std::map<int64_t, double> metrics_;
};

}  // namespace tessera
