// SPDX-License-Identifier: Apache-2.0
// Whole runs of a composition, with a directory and checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/compile/numerics.h"
#include "tests/composition/composition.h"

namespace tessera {

// Trains up to this step, from the newest checkpoint of the directory on. REQUIREs success.
void train(const Composition& composition, int64_t steps, const std::filesystem::path& directory,
           Numerics numerics = Numerics::kStandard);

// The lines of steps in metrics.jsonl, without times.
std::vector<std::string> lines_of_steps(const std::filesystem::path& directory);

}  // namespace tessera
