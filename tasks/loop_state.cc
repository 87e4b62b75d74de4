// SPDX-License-Identifier: Apache-2.0
#include "tasks/loop_state.h"

#include <fmt/format.h>

namespace tessera {
namespace {

// Beside the input's own keys.
constexpr const char* kStopReason = "trainer/stop_reason";
constexpr const char* kBestMetric = "trainer/best_metric";
constexpr const char* kEvalsSinceBest = "trainer/evals_since_best";
constexpr const char* kMesh = "trainer/mesh";

}  // namespace

void put_loop_state(const LoopState& state, CheckpointInfo* info) {
  info->input_position = state.input.position;
  info->input_extra = state.input.extra;
  if (!state.stop_reason.empty()) info->input_extra[kStopReason] = state.stop_reason;
  info->input_extra[kBestMetric] = fmt::format("{}", state.early_stopper.best);
  info->input_extra[kEvalsSinceBest] = fmt::format("{}", state.early_stopper.evals_since_best);
  info->input_extra[kMesh] = state.mesh;
}

LoopState loop_state_of(const CheckpointInfo& info) {
  LoopState state;
  state.input = {info.input_position, info.input_extra};
  const auto take = [&](const char* name) {
    const auto node = state.input.extra.extract(name);
    return node ? node.mapped() : std::string();
  };
  state.stop_reason = take(kStopReason);
  const std::string best = take(kBestMetric), since = take(kEvalsSinceBest);
  if (!best.empty()) state.early_stopper = {std::stod(best), std::stoll(since)};
  state.mesh = take(kMesh);
  return state;
}

}  // namespace tessera
