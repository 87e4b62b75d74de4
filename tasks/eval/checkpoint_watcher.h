// SPDX-License-Identifier: Apache-2.0
// Which checkpoints --mode=eval scores, one after the other: the newest, one by its number, all, or
// each that a running job saves. It takes no lock and never writes; a checkpoint that it names may
// be gone when it is opened, for the job lets old ones go.
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
#include "tasks/eval_hparams.h"

namespace tessera {

class CheckpointWatcher {
 public:
  // `scored`: steps that need not be scored again when a job is followed.
  CheckpointWatcher(const std::filesystem::path& run_directory, const CheckpointChoice& choice,
                    const EvaluationHParams& p, std::set<int64_t> scored);

  struct Next {
    enum class Kind { kStep, kWait, kEnd };
    Kind kind = Kind::kEnd;
    int64_t step = 0;
    std::string why;  // Of kEnd, if there is anything to say.
  };
  // kWait, after a moment's sleep, while a followed job has saved nothing new; the sleep ends early
  // when `stop` says so. Error if there is nothing to score, and nothing to come.
  Next next(const std::function<bool()>& stop);
  // What became of the last kStep: it was scored, or it was gone.
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
  bool listed_ = false;  // kAll: those that there were at the beginning.
  std::vector<int64_t> to_score_;
  std::string last_signs_;
  std::chrono::steady_clock::time_point alive_at_;
};

}  // namespace tessera
