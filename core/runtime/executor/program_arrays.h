// SPDX-License-Identifier: Apache-2.0
// The arrays that the programs of an executor read and write, as one device would see them: no
// layouts in memory and no plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/type.h"

namespace tessera {

// An input of a program, or an output that is not an update.
struct ProgramArray {
  std::string name;
  InputKind kind = InputKind::kBatch;  // For inputs only.
  Type type;                           // Global type.
};

// A parameter or state of the programs.
struct Buffer {
  std::string name;
  InputKind kind = InputKind::kState;
  Type type;                    // Global type.
  std::vector<int64_t> stages;  // Stages of a pipeline that hold it, ascending; empty: all.
};

}  // namespace tessera
