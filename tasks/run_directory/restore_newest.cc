// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/restore_newest.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tasks/session/model_state.h"

namespace tessera {
namespace {

// Process 0 looks for all, so that a checkpoint that comes or goes meanwhile divides nobody. Newest
// first.
std::vector<int64_t> agreed_steps(const CheckpointStore& store, ProcessGroup& processes) {
  std::string text;
  if (processes.is_first()) text = fmt::format("{}", fmt::join(store.steps(), " "));
  std::istringstream numbers(processes.broadcast(text, "the checkpoints to go on from"));
  std::vector<int64_t> steps;
  for (int64_t step = 0; numbers >> step;) steps.push_back(step);
  std::reverse(steps.begin(), steps.end());
  return steps;
}

CheckpointInfo restore_step(Executor& executor, const CheckpointStore& store, int64_t step) {
  const Checkpoint checkpoint = store.open(step);
  restore_state(executor, checkpoint);
  return checkpoint.info();
}

// Nothing if any process finds damage in what it reads; then `damage` says what.
std::optional<CheckpointInfo> restore_if_whole(Executor& executor, const CheckpointStore& store,
                                               ProcessGroup& processes, int64_t step,
                                               std::string* damage) {
  CheckpointInfo info;
  damage->clear();
  try {
    info = restore_step(executor, store, step);
  } catch (const DamagedCheckpoint& error) {
    *damage = error.what();
  }
  for (const std::string& each : processes.gather(*damage, "whether a checkpoint is damaged"))
    if (damage->empty()) *damage = each;
  return damage->empty() ? std::optional(info) : std::nullopt;
}

void set_aside(const CheckpointStore& store, const std::vector<int64_t>& damaged, int64_t good,
               OnDamage on_damage, const std::function<void(const std::string&)>& say) {
  for (const int64_t step : damaged) {
    const std::string where = on_damage == OnDamage::kFallBack
                                  ? fmt::format("kept as {}", store.set_aside(step).string())
                                  : std::string("left where it is, because this is a dry run");
    say(
        fmt::format("warning: going on from step {} in place of step {}, whose checkpoint is "
                    "damaged and {}",
                    good, step, where));
  }
}

}  // namespace

std::optional<RestoredState> restore_newest(Executor& executor, const CheckpointStore& store,
                                            ProcessGroup& processes, OnDamage on_damage,
                                            const std::function<void(const std::string&)>& say) {
  const std::vector<int64_t> steps = agreed_steps(store, processes);
  if (steps.empty()) return std::nullopt;
  if (on_damage == OnDamage::kFail) return RestoredState{restore_step(executor, store, steps[0])};
  std::vector<int64_t> damaged;
  for (const int64_t step : steps) {
    std::string damage;
    const auto info = restore_if_whole(executor, store, processes, step, &damage);
    if (!info) {
      say("warning: " + damage);
      damaged.push_back(step);
      continue;
    }
    if (processes.is_first()) set_aside(store, damaged, step, on_damage, say);
    processes.barrier("setting damaged checkpoints aside");
    return RestoredState{*info, std::ssize(damaged)};
  }
  fail("{}: every checkpoint is damaged (steps {}); start over with --restart",
       store.directory().string(), fmt::join(damaged, ", "));
}

}  // namespace tessera
