// SPDX-License-Identifier: Apache-2.0
// Which rows of the global batches a process reads: those that its devices hold.
#pragma once

#include <cstdint>

#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"
#include "tasks/task/step_sizes.h"

namespace tessera {

// The infeed of process `process` of `processes` with this many devices each; 0: a plan, without
// rows. Error if the mesh cannot hold a batch of these sizes.
Infeed process_infeed(const StepSizes& sizes, const Mesh& mesh, const AxisRules& rules,
                      int64_t process, int64_t processes, int64_t devices);

}  // namespace tessera
