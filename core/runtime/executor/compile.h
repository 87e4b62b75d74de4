// SPDX-License-Identifier: Apache-2.0
// From a traced graph to the graph of one device that memory planning takes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/memory/step_plan.h"
#include "core/passes/remat/remat.h"

namespace tessera {

struct CompileOptions {
  Mesh mesh;
  RematPolicy remat;
  // Unset: collectives overlap compute if the run has several processes or, in a plan without
  // devices, if the mesh has several slices, or if the kind of device overlaps them.
  std::optional<Communication> communication;
  bool verify_passes = false;  // Run the verifier between passes (always in debug builds).
  // Called with each stage's name ("trace", "remat", "lower", "fuse", "schedule") and graph, for
  // --dump_graph. Of stages that differ between devices it gets the first device's graph.
  std::function<void(std::string_view stage, const Graph&)> on_stage;
};

// Of several devices, on_stage gets the graph of one.
enum class Stages { kShown, kSilent };

// The passes that give the same graph for all devices.
Graph compile_shared(const Graph& traced, const CompileOptions& options,
                     std::vector<SavedValue>& saved);

// The other passes, for device `number` of the mesh. `kind` is a device like it: updates are fused,
// products with what follows them, and norms with residuals, if it can run that.
Graph compile_for_device(const Graph& rematerialized, const CompileOptions& options, int64_t number,
                         Stages stages, const Device& kind);

// The next value of each copy in a compiled program (keep_copies()), from the parameter that is an
// input; nullopt if the program keeps no copies.
std::optional<Graph> graph_of_copies(const Graph& compiled);

}  // namespace tessera
