// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/compile.h"

#include <utility>

#include "core/compile/decompose.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/schedule/schedule.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/norm.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

#ifdef NDEBUG
constexpr bool kAlwaysVerify = false;
#else
constexpr bool kAlwaysVerify = true;
#endif

void end_stage(std::string_view name, const Graph& graph, const Mesh& mesh,
               const CompileOptions& options, Stages stages = Stages::kShown) {
  if (options.verify_passes || kAlwaysVerify) verify(graph, mesh, name);
  if (options.on_stage && stages == Stages::kShown) options.on_stage(name, graph);
}

}  // namespace

Graph compile_shared(Graph traced, const CompileOptions& options, std::vector<SavedValue>& saved) {
  end_stage("trace", traced, options.mesh, options);
  Graph graph = rematerialize(std::move(traced), options.remat, &saved);
  if (options.numerics == Numerics::kMeshInvariant) graph = with_whole_sums(graph, options.mesh);
  end_stage("remat", graph, options.mesh, options);
  return graph;
}

DeviceGraph compile_for_device(const Graph& rematerialized, const CompileOptions& options,
                               int64_t number, Stages stages, const Device& kind,
                               const StageHomes& held) {
  const Mesh local;  // Lowered graphs have local types.
  StageGraph lowered = options.pipeline
                           ? lower_stage(rematerialized, options.mesh, *options.pipeline, number)
                           : StageGraph{lower(rematerialized, options.mesh, number), {}};
  if (!options.pipeline && !held.empty())
    lowered = {fetch_inputs(lowered.graph, held, options.mesh, number), held};
  Graph graph = std::move(lowered.graph);
  end_stage("lower", graph, local, options, stages);
  graph = decompose(std::move(graph), [&](const OpDef& op) { return kind.has_kernel(op); });
  graph = accumulate_in_loops(std::move(graph));
  // Copies are made by a program that either all devices capture, or none (agree_on_capture): a
  // stage without updated parameters would have no such program.
  if (kind.has_kernel(kFusedUpdatesOp)) {
    // In f64 a copy of a parameter would be the parameter.
    if (!options.pipeline && options.numerics != Numerics::kF64)
      graph = keep_copies(std::move(graph));
    graph = fuse_updates(std::move(graph));
  }
  if (kind.has_kernel(kFusedProductOp)) graph = fuse_products(std::move(graph));
  if (kind.has_kernel(kFusedNormOp)) graph = fuse_norms(std::move(graph));
  if (kind.has_kernel(kFusedOp)) graph = fuse(std::move(graph));
  end_stage("fuse", graph, local, options, stages);
  graph = schedule(std::move(graph));
  end_stage("schedule", graph, local, options, stages);
  // Decompositions are traced with the dtypes of the program, so they come first.
  if (options.numerics == Numerics::kF64)
    graph = in_f64(decompose(std::move(graph), [](const OpDef&) { return false; }));
  return {std::move(graph), std::move(lowered.homes)};
}

std::optional<Graph> graph_of_copies(const Graph& compiled) {
  Graph graph;
  const Mesh local;
  const AxisRules rules;
  const TraceScope scope(graph, local, rules);
  for (const GraphInput& parameter : compiled.inputs()) {
    if (parameter.kind != InputKind::kParameter) continue;
    const GraphInput* const copy = compiled.find_input(copy_name(parameter.name));
    if (copy == nullptr) continue;
    input(copy->name, InputKind::kState, compiled.type(copy->value));
    const Tensor from = input(parameter.name, parameter.kind, compiled.type(parameter.value));
    graph.add_update(copy->name, cast(from, compiled.type(copy->value).dtype).id());
  }
  if (graph.inputs().empty()) return std::nullopt;
  return graph;
}

}  // namespace tessera
