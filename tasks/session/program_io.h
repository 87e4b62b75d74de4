// SPDX-License-Identifier: Apache-2.0
// Host values in and out of the executor's programs, by the names that tasks give them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "inputs/base_input.h"
#include "tasks/metric_means.h"

namespace tessera {

// Writes the arrays of a batch that the program uses.
void write_batch(Executor& executor, int program, const Batch& batch);

// The names of a program's outputs that begin with `prefix`, without it.
std::vector<std::string> outputs_after(const Executor& executor, int program,
                                       std::string_view prefix);

// Rows of a batch that this process's devices hold.
int64_t local_rows(const Executor& executor, int program);

// Adds the sum and weight that the program computed for each of these metrics.
void add_metrics(const Executor& executor, int program, const std::vector<std::string>& metrics,
                 MetricMeans* means);

// Writes a scalar, if the program uses it.
template <typename T>
void write_scalar(Executor& executor, int program, std::string_view name, T value) {
  const auto& inputs = executor.plan(program).inputs;
  const bool used = std::any_of(inputs.begin(), inputs.end(),
                                [&](const Placement& input) { return input.name == name; });
  if (used) executor.write_input(program, name, std::as_bytes(std::span(&value, 1)));
}

}  // namespace tessera
