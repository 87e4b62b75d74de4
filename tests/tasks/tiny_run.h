// SPDX-License-Identifier: Apache-2.0
// A run small enough to take by the dozen: one narrow transformer layer on a synthetic task, on the
// CPU, in a directory of its own; and what its metrics.jsonl says.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tasks/experiment.h"
#include "tasks/single_task.h"
#include "tasks/trainer.h"

namespace tessera {

// Copying at a distance of two from an alphabet of eight letters.
ExperimentConfig tiny_config(int64_t num_train_steps = 6, DType compute = DType::kF32);
SingleTask::HParams& task_of(ExperimentConfig& config);

// Constructs a Trainer and runs it; returns its exit code.
int run_tiny(const ExperimentConfig& config, const std::filesystem::path& directory,
             RunOptions options = {});

// The text of `key` in each line that has it, as it stands there.
std::vector<std::string> values_of(const std::filesystem::path& directory, const std::string& key);
// Loss by step, as text: the last said of each.
std::map<std::string, std::string> losses_of(const std::filesystem::path& directory);

}  // namespace tessera
