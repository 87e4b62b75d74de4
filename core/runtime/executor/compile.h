// SPDX-License-Identifier: Apache-2.0
// The passes from a traced graph to the one that a device runs. No memory is planned here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/step_plan.h"
#include "core/passes/remat/remat.h"

namespace tessera {

struct CompileOptions {
  Mesh mesh;
  RematPolicy remat;
  // Unset: collectives overlap compute where the run has several processes; of plans without
  // devices, where the mesh has several slices.
  std::optional<Communication> communication;
  bool verify_passes = false;  // Run the verifier between passes (always in debug builds).
  // Called with each stage's name ("trace", "remat", "lower", "fuse", "schedule") and graph, for
  // --dump_graph; of stages that differ between devices, with the first device's of this process.
  std::function<void(std::string_view stage, const Graph&)> on_stage;
};

// The part that is the same for all devices, up to the rematerialized graph.
Graph compile_shared(const Graph& traced, const CompileOptions& options,
                     std::vector<SavedValue>& saved);

// The rest, for one device of the mesh. `on_stage` is not called unless it is the `shown` one.
enum class Stages { kShown, kSilent };
Graph compile_for_device(const Graph& rematerialized, const CompileOptions& options, int64_t device,
                         Stages stages);

}  // namespace tessera
