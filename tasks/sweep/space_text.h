// SPDX-License-Identifier: Apache-2.0
// A sweep without code: `--sweep=PATH=VALUES` and sweep.toml. docs/sweeps.md has the syntax.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/task/config/search_space.h"

namespace tessera {

// "learning_rate=1e-3,3e-4", "seed=1..3", "ici_mesh_shape=[1,4,1],[1,2,2]",
// "learning_rate=log_uniform(1e-4,1e-2)", "dropout_rate=uniform(0,0.3)",
// "num_layers=uniform_integer(2,8)", "task=choice(1,2)". Commas within brackets or quotes separate
// nothing. Error for any other text.
SweepAxis parse_axis(std::string_view text);

// A file:
//   trials = 20                  # Without it, a grid.
//   seed = 1
//   metric = "eval/validation/loss"
//   goal = "min"
//   [space]
//   num_layers = [2, 4]          # Listed values,
//   seq_len = "64,128"           # or the text that --sweep takes,
//   task.learner.learning_rate = "log_uniform(1e-4,1e-2)"
// Error that names the file for unknown keys and wrong values.
Sweep read_sweep(const std::filesystem::path& file);

// Each of --sweep, which is either an axis or, once and alone, a file.
Sweep parse_sweep(const std::vector<std::string>& given);

}  // namespace tessera
