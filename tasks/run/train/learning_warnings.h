// SPDX-License-Identifier: Apache-2.0
// Warnings about settings of a run's learner that are valid but rarely intended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "tasks/task/base_task.h"

namespace tessera {

// Weights that never get a gradient, a warm-up that is longer than the run, and a decay that ends
// before it.
std::vector<std::string> learning_warnings(const BaseTask& task, const Graph& train_graph);

// The note that a run continues at `step`, whose configuration was `hparams_before` (TOML), with
// `change`, and what this changes in the learning rate; "" without a change.
std::string change_note(const std::string& change, int64_t step, const std::string& hparams_before,
                        const BaseTask& task);

}  // namespace tessera
