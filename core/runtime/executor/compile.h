// SPDX-License-Identifier: Apache-2.0
// From a traced graph to the graph of one device that memory planning takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/runtime/executor/executor.h"

namespace tessera {

// Of several devices, on_stage gets the graph of one.
enum class Stages { kShown, kSilent };

// The passes that give the same graph for all devices.
Graph compile_shared(const Graph& traced, const CompileOptions& options,
                     std::vector<SavedValue>& saved);

// The other passes, for device `number` of the mesh. `kind` is a device like it: updates are fused,
// and products with what follows them, if it can run that.
Graph compile_for_device(const Graph& rematerialized, const CompileOptions& options, int64_t number,
                         Stages stages, const Device& kind);

// The next value of each copy in a compiled program (keep_copies()), from the parameter that is an
// input; nullopt if there are none.
std::optional<Graph> graph_of_copies(const Graph& compiled);

}  // namespace tessera
