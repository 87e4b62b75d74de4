// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/compile.h"

#include <string_view>

#include "core/graph/verify.h"
#include "core/passes/fusion/fuse.h"
#include "core/passes/fusion/fuse_products.h"
#include "core/passes/schedule/schedule.h"
#include "core/passes/spmd/lower.h"

namespace tessera {
namespace {

#ifdef NDEBUG
constexpr bool kAlwaysVerify = false;
#else
constexpr bool kAlwaysVerify = true;
#endif

void end_stage(std::string_view name, const Graph& graph, const Mesh& mesh,
               const CompileOptions& options, Stages stages) {
  if (options.verify_passes || kAlwaysVerify) verify(graph, mesh, name);
  if (options.on_stage && stages == Stages::kShown) options.on_stage(name, graph);
}

}  // namespace

Graph compile_shared(const Graph& traced, const CompileOptions& options,
                     std::vector<SavedValue>& saved) {
  end_stage("trace", traced, options.mesh, options, Stages::kShown);
  Graph graph = rematerialize(traced, options.remat, &saved);
  end_stage("remat", graph, options.mesh, options, Stages::kShown);
  return graph;
}

Graph compile_for_device(const Graph& rematerialized, const CompileOptions& options, int64_t device,
                         Stages stages, Products products) {
  const Mesh local;  // Lowered graphs have local types.
  Graph graph = lower(rematerialized, options.mesh, device);
  end_stage("lower", graph, local, options, stages);
  if (products == Products::kFused) graph = fuse_products(graph);
  graph = fuse(graph);
  end_stage("fuse", graph, local, options, stages);
  graph = schedule(graph);
  end_stage("schedule", graph, local, options, stages);
  return graph;
}

}  // namespace tessera
