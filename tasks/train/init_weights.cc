// SPDX-License-Identifier: Apache-2.0
#include "tasks/train/init_weights.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/session/model_state.h"

namespace tessera {

void take_weights(const InitFrom& other, Session& session, Console& console) {
  const CheckpointStore store(std::filesystem::path(other.directory) / "checkpoints");
  const std::optional<int64_t> step = other.step >= 0 ? other.step : store.newest();
  if (!step) fail("task.train.init_from: {} holds no checkpoint", store.directory().string());
  const std::vector<std::string> taken = load_weights(
      session.executor(), session.task().model().parameters(), store.open(*step), other);
  console.info(fmt::format("{} weights from step {} of {}:", taken.size(), *step, other.directory));
  for (const std::string& line : taken) console.info("  " + line);
}

}  // namespace tessera
