// SPDX-License-Identifier: Apache-2.0
// Runs the passes from a traced graph to the graph of one device, the input of memory planning.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/compile/numerics.h"
#include "core/compile/remat/remat.h"
#include "core/compile/stages/homes.h"
#include "core/devices/device.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/schedules/table.h"

namespace tessera {

struct CompileOptions {
  Mesh mesh;
  RematPolicy remat;
  Numerics numerics = Numerics::kStandard;
  // The schedule of the loop over microbatches, for a mesh with the axis `stage`. The devices of
  // each stage then have a graph of their own.
  std::optional<PipelineTable> pipeline;
  // Unset: collectives overlap compute in a pipeline, if the run has several processes or, in a
  // plan without devices, if the mesh has several slices, or if the kind of device overlaps them.
  std::optional<Communication> communication;
  // Durations by which overlapped collectives are scheduled; unset: by their bytes (overlap()).
  LaunchSeconds launch_seconds;
  bool verify_passes = false;  // Run the verifier between passes (always in debug builds).
  // Called with each stage's name ("trace", "remat", "lower", "fuse", "schedule") and graph, for
  // --dump_graph. For stages that differ between devices it gets the first device's graph.
  std::function<void(std::string_view stage, const Graph&)> on_stage;
};

// Whether compile_for_device() calls on_stage; with several devices only one does.
enum class Stages { kShown, kSilent };

// Runs the passes that give the same graph for all devices.
Graph compile_shared(Graph traced, const CompileOptions& options, std::vector<SavedValue>& saved);

// The graph of one device, and which stages of a pipeline hold the inputs of the program.
struct DeviceGraph {
  Graph graph;
  StageHomes homes;
};
// Makes the graph of a device. Called by the threads of all devices at once.
using GraphOfDevice = std::function<DeviceGraph(int64_t number, Stages stages)>;

// Runs the other passes for device `number` of the mesh. `kind` is a device of the same kind:
// updates, products with their epilogues, norms with residuals, and elementwise ops are fused if it
// has kernels for them. `held` are the homes in earlier programs of a pipeline; a program without
// one fetches its inputs from there.
DeviceGraph compile_for_device(const Graph& rematerialized, const CompileOptions& options,
                               int64_t number, Stages stages, const Device& kind,
                               const StageHomes& held = {});

// Returns the graph that computes the next value of each copy in a compiled program (keep_copies())
// from the parameter, which is an input; nullopt if the program keeps no copies.
std::optional<Graph> graph_of_copies(const Graph& compiled);

}  // namespace tessera
