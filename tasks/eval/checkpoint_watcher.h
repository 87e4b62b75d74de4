// SPDX-License-Identifier: Apache-2.0
// Chooses the checkpoints that --mode=eval scores: the newest, a given step, all, or each new one
// of a running job. It takes no lock and writes nothing; a checkpoint may be removed by the job
// before it is opened.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/config/run_options.h"
#include "tasks/hparams.h"

namespace tessera {

class CheckpointWatcher {
 public:
  // `scored`: steps to skip when following a job.
  CheckpointWatcher(const std::filesystem::path& run_directory, const CheckpointChoice& choice,
                    const EvaluationHParams& p, std::set<int64_t> scored);

  struct Next {
    enum class Kind { kStep, kWait, kEnd };
    Kind kind = Kind::kEnd;
    int64_t step = 0;
    std::string why;  // For kEnd: a reason to print, or "".
  };
  // kWait, after a short sleep, while a followed job has saved nothing new; `stop` ends the sleep.
  // Error if there is nothing to score and nothing to wait for.
  Next next(const std::function<bool()>& stop);
  // Tells whether the last kStep was scored or had been removed.
  void settle(int64_t step, bool was_scored);

 private:
  Next next_followed(const std::function<bool()>& stop);
  bool job_is_done() const;
  std::string signs_of_life(const std::vector<int64_t>& steps) const;

  std::filesystem::path run_directory_;
  CheckpointStore store_;
  CheckpointChoice choice_;
  EvaluationHParams p_;
  std::set<int64_t> settled_;
  int64_t num_scored_ = 0;
  bool listed_ = false;  // kAll: whether the existing checkpoints have been listed.
  std::vector<int64_t> to_score_;
  std::string last_signs_;
  std::chrono::steady_clock::time_point alive_at_;
};

}  // namespace tessera
