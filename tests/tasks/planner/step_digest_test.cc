// SPDX-License-Identifier: Apache-2.0
// The optimised program as rows: it has every launch, its memory is the planned one to the byte and
// names what is held at the peak, and its size is bounded.
#include "tasks/planner/step_digest.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/hparams/fold_layers.h"
#include "core/io/json.h"
#include "core/ops/elementwise.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/planner/plan.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

struct Planned {
  Plan plan;
  StepDigest program;
};

Planned planned(const MeshConfig& mesh, Strategy strategy, int64_t num_microbatches = 1) {
  ExperimentConfig config = tiny_config();
  config.mesh = mesh;
  config.mesh.axis_names = strategy_axes(strategy, std::move(config.mesh.axis_names));
  config.rules = strategy_rules(strategy);
  task_of(config).train.num_microbatches = num_microbatches;
  auto& lm = task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.num_layers = 4;
  lm.stacked_transformer_tpl = Repeated::HParams{};
  const TemporaryDirectory directory;
  TinyDevices devices;
  ProcessGroup alone;
  Session session(config, {.run_directory = directory.path(), .allocates = false},
                  devices.in_order(), alone);
  return {make_plan(session.compiled_step()), step_digest(session.compiled_step().largest())};
}

int64_t launches_of(const StepDigest& program) {
  int64_t count = program.left_out.count;
  for (const ProgramRow& row : program.rows) count += row.count;
  return count;
}

bool has_value(const ProgramMemory& memory, const std::string& name, int64_t bytes) {
  return std::ranges::any_of(memory.values, [&](const HeldValue& value) {
    return value.name == name && value.bytes == bytes && value.count > 0;
  });
}

TEST_CASE("the rows of a program have all launches, and its memory is that of the plan") {
  const std::vector<Planned> all = {
      planned({.ici_mesh_shape = {1, 1, 1}}, Strategy::kFullySharded),
      planned({.ici_mesh_shape = {1, 4, 1}}, Strategy::kFullySharded),
      planned({.ici_mesh_shape = {2, 1, 1, 1}}, Strategy::kPipeline, 4)};
  for (const auto& [plan, program] : all) {
    CAPTURE(plan.devices, plan.pipeline.has_value());
    REQUIRE(program.launches == plan.launches);
    REQUIRE(launches_of(program) == plan.launches);
    const ProgramMemory& memory = program.memory;
    REQUIRE(memory.peak.bytes == plan.peak);
    int64_t held = memory.others.bytes;
    for (const HeldValue& value : memory.values) held += value.bytes;
    REQUIRE(held == plan.peak);
    REQUIRE(memory.others.bytes >= 0);
    REQUIRE(has_value(memory, "parameters", plan.memory[0].bytes));
    REQUIRE(std::ranges::any_of(memory.points, [&](const ProgramMemory::Point& point) {
      return point.bytes == plan.peak;
    }));
    REQUIRE(!memory.at.empty());
    REQUIRE(program.backward.has_value() == !plan.pipeline.has_value());
    double flops = 0.0, sent = 0.0;
    for (const ProgramRow& row : program.rows) {
      REQUIRE(without_indices(row.path) == row.path);
      flops += row.flops;
      sent += row.sent;
    }
    REQUIRE(flops == Approx(plan.flops_per_device));
    REQUIRE((sent > 0.0) == (plan.devices > 1));
    const Json json = parse_json(program_json(program), "program");
    REQUIRE(json.at("rows").as_array().size() == program.rows.size());
    REQUIRE(json.at("memory").at("peak_bytes").as_integer() == plan.peak);
  }
  REQUIRE(*all[0].program.backward < *all[0].program.update);
}

// `count` launches in layers of different names. Each reads the result of the one before, and
// writes a block of `bytes` that the next one reads.
StepProgram chain(size_t count, int64_t bytes) {
  auto graph = std::make_shared<Graph>();
  const Type type = make_type(DType::kF32, {{"batch", bytes / 4, {}}});
  ValueId value = graph->add_input("batch/ids", InputKind::kBatch, type);
  StepProgram step;
  step.blocks.push_back({bytes, -1, 0, 0});
  for (size_t i = 0; i < count; ++i) {
    const NodeId node = graph->add_node(
        {.op = &kExpOp, .inputs = {value}, .path = fmt::format("lm.layer_{}", i)}, {type});
    value = graph->node(node).outputs[0];
    const auto at = static_cast<int64_t>(i);
    step.blocks.push_back({bytes, at, at + 1, bytes * (1 - at % 2)});
    Launch launch{.graph = graph.get(), .node = node, .inputs = {bytes * (at % 2)}, .outputs = {}};
    launch.outputs = {bytes * (1 - at % 2)};
    step.launches.push_back(launch);
  }
  step.graph = graph;
  step.inputs.push_back({"batch/ids", InputKind::kBatch, type, 0});
  return step;
}

TEST_CASE("what is held at the peak has the name of its writer") {
  StepProgram step = chain(3, 128);
  // Launch 2 has scratch memory. It writes where launch 0 wrote.
  step.blocks.push_back({128, 2, 2, 256});
  step.launches[LaunchId(2)].scratch = 256;
  const ProgramMemory memory = step_digest(step).memory;
  REQUIRE(memory.peak.launch == 2);
  REQUIRE(memory.peak.bytes == 384);
  REQUIRE(memory.at == "exp in lm.layer_2");
  REQUIRE(memory.others.bytes == 0);
  REQUIRE(memory.values.size() == 3);
  REQUIRE(has_value(memory, "exp of lm.layer_1", 128));
  REQUIRE(has_value(memory, "exp of lm.layer_2", 128));
  REQUIRE(has_value(memory, "scratch of exp", 128));
  // At the first launch the batch is still there.
  const ProgramMemory first = step_digest(chain(1, 128)).memory;
  REQUIRE(has_value(first, "batch/ids", 128));
  REQUIRE(has_value(first, "exp of lm.layer_0", 128));
}

TEST_CASE("a program with many layers of different names is listed in part, and says what is not") {
  const StepDigest program = step_digest(chain(2000, 128));
  REQUIRE(program.rows.size() <= 500);
  REQUIRE(program.left_out.count > 0);
  REQUIRE(launches_of(program) == 2000);
  REQUIRE(program.memory.points.size() <= 256);
  REQUIRE(program_json(program).size() < 300'000);
  REQUIRE_THAT(program_json(program), Catch::Contains("\"left_out\": {\"count\": "));
}

}  // namespace
}  // namespace tessera
