// SPDX-License-Identifier: Apache-2.0
// Writes host values to the inputs of the executor's programs and reads their outputs, by name.
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

// Writes the fields of the batch that the program's graph uses; ignores the others.
void write_batch(Executor& executor, int program, const Batch& batch);

// The names of a program's outputs that begin with `prefix`, without the prefix.
std::vector<std::string> outputs_after(const Executor& executor, int program,
                                       std::string_view prefix);

// The rows of a batch that this process's devices hold.
int64_t local_rows(const Executor& executor, int program);

// Adds the sums and weights that a program has output for these metrics.
void add_metrics(const Executor& executor, int program, const std::vector<std::string>& metrics,
                 MetricMeans* means);

// Writes a scalar input, if the program has it.
template <typename T>
void write_scalar(Executor& executor, int program, std::string_view name, T value) {
  const auto& inputs = executor.plan(program).inputs;
  const bool used = std::any_of(inputs.begin(), inputs.end(),
                                [&](const Placement& input) { return input.name == name; });
  if (used) executor.write_input(program, name, std::as_bytes(std::span(&value, 1)));
}

}  // namespace tessera
