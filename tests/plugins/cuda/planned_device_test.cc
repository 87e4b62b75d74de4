// SPDX-License-Identifier: Apache-2.0
// Compares the device of plans (tasks/planner/prediction.h) with the CUDA device: it has the
// same kernels, and none of its results overwrites an operand that CUDA's kernel needs.
#include <set>
#include <string>

#include "core/check/op_cases.h"
#include "core/compile/memory/step_program.h"
#include "core/ops/pipeline.h"
#include "core/runtime/executor/executor.h"
#include "tasks/planner/prediction.h"
#include "tasks/run/train/train_session.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/tiny_run.h"

namespace tessera::cuda {
namespace {

Graph compiled_case(const OpCase& row, DType dtype, Device& device) {
  CompileOptions options;
  options.mesh = Mesh::standard({1, 1, 1});
  Graph compiled;
  options.on_stage = [&](std::string_view stage, const Graph& at) {
    if (stage == "schedule") compiled = at;
  };
  Executor::for_planning(device).add_program(traced_case(row, dtype, options.mesh), options);
  return compiled;
}

// How often the kernels of a graph on both devices allow, or only one of them allows, that a result
// overwrites an operand of as many bytes.
struct Overwrites {
  int64_t both = 0, only_cuda = 0;
  std::set<std::string> only_planned;  // Ops.

  void add(const Graph& graph, Device& planned, Device& gpu) {
    for (const Node& node : graph.nodes()) {
      for (const auto& body : node.bodies)
        if (runs_bodies(node)) add(*body, planned, gpu);
      if (runs_bodies(node) || view_offset(graph, node)) continue;
      const auto of_plan = planned.prepare(graph, node), of_cuda = gpu.prepare(graph, node);
      for (size_t o = 0; o < node.outputs.size(); ++o)
        for (size_t i = 0; i < node.inputs.size(); ++i)
          if (graph.type(node.outputs[o]).bytes() == graph.type(node.inputs[i]).bytes())
            add(node, of_plan->may_overwrite(static_cast<int64_t>(o), static_cast<int64_t>(i)),
                of_cuda->may_overwrite(static_cast<int64_t>(o), static_cast<int64_t>(i)));
    }
  }

 private:
  void add(const Node& node, bool is_planned, bool is_allowed) {
    if (is_planned && is_allowed) ++both;
    if (!is_planned && is_allowed) ++only_cuda;
    if (is_planned && !is_allowed) only_planned.insert(std::string(node.op->name));
  }
};

TEST_CASE("a planned GPU has the kernels of the CUDA device") {
  const TestDevices devices;
  const auto planned = make_planned_device(hardware_named("h100"));
  std::set<std::string_view> differing;
  for (const OpDef* op : all_ops())
    if (op->decomposition != nullptr && planned->has_kernel(*op) != devices.gpu->has_kernel(*op))
      differing.insert(op->name);
  REQUIRE(differing == std::set<std::string_view>());
}

TEST_CASE("a planned GPU overwrites no operand that a CUDA kernel keeps") {
  const TestDevices devices;
  const auto planned = make_planned_device(hardware_named("h100"));
  Overwrites found;
  for (const OpCase& row : all_op_cases())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      found.add(compiled_case(row, dtype, *devices.gpu), *planned, *devices.gpu);
    }
  REQUIRE(found.only_planned == std::set<std::string>());
  REQUIRE(found.both > 100);
  REQUIRE(found.only_cuda < found.both);
}

TEST_CASE("a planned GPU overwrites no operand of a training step that a CUDA kernel keeps") {
  const TestDevices devices;
  const auto planned = make_planned_device(hardware_named("h100"));
  ProcessGroup alone;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const Session session(tiny_config(6, compute), {.allocates = false}, {devices.gpu.get()},
                          alone);
    Overwrites found;
    found.add(*session.compiled_step().largest().graph, *planned, *devices.gpu);
    REQUIRE(found.only_planned == std::set<std::string>());
    REQUIRE(found.both > 10);
  }
}

}  // namespace
}  // namespace tessera::cuda
