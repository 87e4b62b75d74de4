// SPDX-License-Identifier: Apache-2.0
// The passes from a traced graph to the graph that a device runs. Memory is planned elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/remat/remat.h"
#include "core/passes/step_plan.h"

namespace tessera {

struct CompileOptions {
  Mesh mesh;
  RematPolicy remat;
  // Unset: collectives overlap compute if the run has several processes or, in a plan without
  // devices, if the mesh has several slices.
  std::optional<Communication> communication;
  bool verify_passes = false;  // Run the verifier between passes (always in debug builds).
  // Called with each stage's name ("trace", "remat", "lower", "fuse", "schedule") and graph, for
  // --dump_graph. Of stages that differ between devices it gets the first device's graph.
  std::function<void(std::string_view stage, const Graph&)> on_stage;
};

// The passes that give the same graph for all devices: verification and rematerialization.
Graph compile_shared(const Graph& traced, const CompileOptions& options,
                     std::vector<SavedValue>& saved);

// The other passes, for one device of the mesh. on_stage is called only with kShown.
enum class Stages { kShown, kSilent };
// Whether matrix products apply what follows them (fuse_products), as far as the backend can.
enum class Products { kAlone, kFused };
Graph compile_for_device(const Graph& rematerialized, const CompileOptions& options, int64_t device,
                         Stages stages, Products products);

}  // namespace tessera
