// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/train/loop_state.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/hparams/convert.h"

namespace tessera {
namespace {

// Keys beside those of the input.
constexpr const char* kStopReason = "trainer/stop_reason";
constexpr const char* kBestMetric = "trainer/best_metric";
constexpr const char* kEvalsSinceBest = "trainer/evals_since_best";
constexpr const char* kMesh = "trainer/mesh";
constexpr const char* kBuild = "trainer/build";
constexpr const char* kPlugins = "trainer/plugins";
constexpr const char* kRevision = "trainer/revision";
constexpr const char* kComputation = "trainer/computation";
constexpr const char* kInterrupted = "trainer/interrupted";
// "eval/<dataset>/position", "eval/<dataset>/extra/<key>"; dataset names contain no slash.
constexpr std::string_view kEvalStatePrefix = "eval/";
constexpr std::string_view kPosition = "position";
constexpr std::string_view kExtra = "extra/";

int64_t position_of(const std::string& key, const std::string& text) {
  const std::optional<int64_t> position = parse_integer(text);
  if (!position) fail("the checkpoint's '{}' is '{}'; expected a number", key, text);
  return *position;
}

std::map<std::string, InputState> take_evals(std::map<std::string, std::string>* extra) {
  std::map<std::string, InputState> evals;
  for (auto at = extra->lower_bound(std::string(kEvalStatePrefix));
       at != extra->end() && at->first.starts_with(kEvalStatePrefix); at = extra->erase(at)) {
    const std::string key = at->first.substr(kEvalStatePrefix.size());
    const size_t slash = std::min(key.find('/'), key.size());
    InputState& state = evals[key.substr(0, slash)];
    const std::string what = key.substr(std::min(slash + 1, key.size()));
    if (what == kPosition) state.position = position_of(at->first, at->second);
    if (what.starts_with(kExtra)) state.cursors[what.substr(kExtra.size())] = at->second;
  }
  return evals;
}

}  // namespace

void put_loop_state(const LoopState& state, CheckpointInfo* info) {
  info->input_position = state.input.position;
  info->input_extra = state.input.cursors;
  for (const auto& [dataset, input] : state.evals) {
    info->input_extra[fmt::format("{}{}/{}", kEvalStatePrefix, dataset, kPosition)] =
        std::to_string(input.position);
    for (const auto& [key, value] : input.cursors)
      info->input_extra[fmt::format("{}{}/{}{}", kEvalStatePrefix, dataset, kExtra, key)] = value;
  }
  if (!state.stop_reason.empty()) info->input_extra[kStopReason] = state.stop_reason;
  info->input_extra[kBestMetric] = fmt::format("{}", state.early_stopper.best);
  info->input_extra[kEvalsSinceBest] = fmt::format("{}", state.early_stopper.evals_since_best);
  info->input_extra[kMesh] = state.mesh;
  info->input_extra[kBuild] = state.code.build;
  info->input_extra[kPlugins] = state.code.plugins;
  info->input_extra[kRevision] = state.code.revision;
  info->input_extra[kComputation] = state.computation;
  if (!state.interrupted.empty()) info->input_extra[kInterrupted] = state.interrupted;
}

LoopState loop_state_of(const CheckpointInfo& info) {
  LoopState state;
  state.input = {info.input_position, info.input_extra};
  state.evals = take_evals(&state.input.cursors);
  const auto take = [&](const char* name) {
    const auto node = state.input.cursors.extract(name);
    return node ? node.mapped() : std::string();
  };
  state.stop_reason = take(kStopReason);
  const std::string best = take(kBestMetric), since = take(kEvalsSinceBest);
  if (!best.empty()) state.early_stopper = {std::stod(best), std::stoll(since)};
  state.mesh = take(kMesh);
  state.code = {take(kBuild), take(kPlugins), take(kRevision)};
  state.computation = take(kComputation);
  state.interrupted = take(kInterrupted);
  return state;
}

InputState merged_input_states(const InputState& mine, ProcessGroup& processes) {
  if (processes.size() == 1) return mine;
  InputState all;  // Equal in every process, and so are errors.
  const std::vector<std::string> states =
      processes.all_gather(pack(mine.position, mine.cursors), "the inputs' positions");
  for (size_t rank = 0; rank < states.size(); ++rank) {
    InputState state;
    unpack(states[rank], state.position, state.cursors);
    all.position = std::max(all.position, state.position);
    for (const auto& [key, value] : state.cursors) {
      const auto [entry, added] = all.cursors.emplace(key, value);
      if (!added && entry->second != value)
        fail("the input's '{}' is '{}' in {}, but '{}' in a process before it", key, value,
             processes.name(static_cast<int>(rank)), entry->second);
    }
  }
  return all;
}

std::string EarlyStopper::observe(const std::map<std::string, double>& metrics) {
  if (p_.metric.empty()) return "";
  const auto found = metrics.find(p_.metric);
  CHECK(found != metrics.end(), "no metric {}", p_.metric);
  const double value = found->second;
  if (value < state_.best - p_.min_improvement) {
    state_ = {value, 0};
  } else {
    ++state_.evals_since_best;
  }
  if (p_.stop_at_target && value <= p_.target)
    return fmt::format("{} = {:.4f} has reached the target {}", p_.metric, value, p_.target);
  if (p_.patience_evals > 0 && state_.evals_since_best >= p_.patience_evals)
    return fmt::format("{} has not improved on {:.4f} for {} evaluations", p_.metric, state_.best,
                       state_.evals_since_best);
  return "";
}

}  // namespace tessera
