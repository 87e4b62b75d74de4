// SPDX-License-Identifier: Apache-2.0
// Programs whose stages have different graphs: each stage has its plan, its arena and its arrays,
// and all together hold what one device holds. The graphs of the stages are written by hand.
#include <algorithm>
#include <map>
#include <optional>
#include <thread>

#include "core/base/error.h"
#include "core/devices/reference/array.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/communicator_trial.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

Bytes encoded(const std::vector<double>& values) {
  Bytes bytes(values.size() * 4);
  encode_values(DType::kF32, values, bytes.data());
  return bytes;
}

// Stages are outermost, so devices 0 and 1 are stage 0.
Mesh mesh_of_stages(std::vector<int64_t> layers_of_pieces, int64_t data = 2) {
  Mesh mesh({{"stage", 2}, {"data", data}});
  mesh.divide_layers(std::move(layers_of_pieces));
  return mesh;
}
Mesh one_device() { return Mesh({{"stage", 1}, {"data", 1}}); }

// loss = sum(x * table) + data * (sum(stack) + sum(head)); parameters are multiplied by `rate`. All
// values are small integers, so sums are exact.
Graph trace_whole(const Mesh& mesh) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=4 embed=3\"]"));
  const Tensor table = input("table", InputKind::kParameter, parse_type("f32[\"embed=3\"]"));
  const Tensor stack =
      input("stack", InputKind::kParameter, parse_type("f32[\"layers/stage=5 embed=3\"]"));
  const Tensor head = input("head", InputKind::kState, parse_type("f32[\"out=7\"]"));
  const Tensor rate = input("rate", InputKind::kScalar, parse_type("f32[]"));
  const auto whole = [](const Tensor& value) { return reshard(value, parse_type("f32[]")); };
  const Tensor layers = whole(reduce_sum(stack)) + reduce_sum(head);
  output("loss", whole(reduce_sum(einsum(x, table, over("embed")))) + layers * 2.0);
  graph.add_update("table", (table * rate).id());
  graph.add_update("stack", (stack * rate).id());
  graph.add_update("head", (head * rate).id());
  return graph;
}

// The table and the batch are on stage 0, the head is on stage 1.
StageHomes homes() { return {{"x", {0}}, {"table", {0}}, {"head", {1}}}; }

// Builds the graph of a stage's device: loss is the sum of one term on each device.
DeviceGraph graph_of_stage(const Mesh& mesh, int64_t device) {
  Graph graph;
  const Mesh local;
  const AxisRules rules;
  const TraceScope trace(graph, local, rules);
  const Graph whole = trace_whole(mesh);
  const int64_t stage = mesh.stage_of(device);
  const auto own = [&](const char* name) {
    const GraphInput& it = *whole.find_input(name);
    return input(name, it.kind, local_type(whole.type(it.value), mesh));
  };
  std::map<std::string, Tensor> parameters;
  Tensor term;
  if (stage == 0) {
    const Tensor x = own("x");
    term = reduce_sum(einsum(x, parameters["table"] = own("table"), over("embed")));
  }
  term = stage == 0 ? term + reduce_sum(parameters["stack"] = own("stack"))
                    : reduce_sum(parameters["stack"] = own("stack"));
  if (stage == 1) term = term + reduce_sum(parameters["head"] = own("head"));
  const Tensor rate = own("rate");
  const std::vector<std::string> all = {"stage", "data"};
  Node sum;
  sum.op = &find_op("all_reduce");
  sum.inputs = {term.id()};
  sum.attributes = {{key::kMeshAxes, all},
                    {key::kReduction, "sum"},
                    {key::kGroup, mesh.group(device, all)},
                    {key::kIndex, mesh.index_along(device, all)}};
  const NodeId id = graph.add_node(std::move(sum), {term.type()});
  output("loss", Tensor(&graph, graph.node(id).outputs[0]));
  for (const auto& [name, value] : parameters) graph.add_update(name, (value * rate).id());
  return {std::move(graph), homes()};
}

using Values = std::map<std::string, Bytes>;

// Initial values, which differ everywhere.
std::vector<double> initial(const std::string& name, int64_t elements) {
  std::vector<double> values;
  for (int64_t i = 0; i < elements; ++i)
    values.push_back(static_cast<double>(i + 1 + 20 * static_cast<int64_t>(name.size())));
  return values;
}

int add_step(Executor& executor, const Mesh& mesh) {
  const Graph whole = trace_whole(mesh);
  CompileOptions options;
  options.mesh = mesh;
  if (mesh.stages() == 1) return executor.add_program(whole, options);
  return executor.add_program(whole, options,
                              [&](int64_t device, Stages) { return graph_of_stage(mesh, device); });
}

void write_initial(Executor& executor) {
  for (const Buffer& buffer : executor.persistent())
    executor.write_state(buffer.name, encoded(initial(buffer.name, buffer.type.elements())));
}

// The losses of two steps.
std::vector<float> take_steps(Executor& executor, int program) {
  const Bytes batch = encoded(initial("x", 12));
  std::vector<float> losses;
  for (int step = 0; step < 2; ++step) {
    Bytes rows;
    for (const RowRange& range : executor.input_rows(program, "x"))
      rows.insert(rows.end(), batch.begin() + range.begin * 12, batch.begin() + range.end * 12);
    executor.write_input(program, "x", rows);
    executor.write_input(program, "rate", encoded({2.0}));
    executor.start(program, std::vector<std::string>{"loss"});
    losses.push_back(executor.finish()[0]);
  }
  return losses;
}

Values state_of(Executor& executor) {
  Values values;
  for (const Buffer& buffer : executor.persistent()) {
    Bytes& bytes = values[buffer.name];
    bytes.resize(static_cast<size_t>(buffer.type.bytes()));
    executor.read_state(buffer.name, bytes);
  }
  return values;
}

// One process, with the executor of all devices of a mesh.
struct Machine {
  explicit Machine(const Mesh& wanted)
      : mesh(wanted),
        devices(make_test_devices(mesh.num_devices(), 1)),
        communicator(make_test_communicator({.local_devices = mesh.num_devices()})),
        executor(pointers(devices), *communicator) {
    program = add_step(executor, mesh);
    executor.allocate();
  }
  Mesh mesh;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Communicator> communicator;
  Executor executor;
  int program = 0;
};

std::vector<CheckpointArray> owned_arrays(const Executor& executor) {
  std::vector<CheckpointArray> arrays;
  for (const Buffer& buffer : executor.persistent()) {
    std::vector<int64_t> shape;
    for (const Axis& axis : buffer.type.axes) shape.push_back(axis.size);
    for (const Shard& shard : executor.shards_to_read(buffer.name))
      if (shard.owned)
        arrays.push_back({buffer.name, DType::kF32, shape, shard.block, shard.memory});
  }
  return arrays;
}

void restore(Executor& executor, const Checkpoint& checkpoint) {
  for (const Buffer& buffer : executor.persistent())
    for (const Shard& shard : executor.shards(buffer.name))
      shard.memory.map(HostAccess::kWrite, [&](std::span<std::byte> bytes) {
        checkpoint.read_block(buffer.name, shard.block, bytes);
      });
}

const std::vector<std::vector<int64_t>> kDivisions = {{3, 2}, {2, 3}, {1, 2, 1, 1}, {1, 1, 2, 1}};

TEST_CASE("stages with different graphs compute and hold what one device does") {
  Machine one(one_device());
  write_initial(one.executor);
  const std::vector<float> losses = take_steps(one.executor, one.program);
  const Values expected = state_of(one.executor);
  for (const std::vector<int64_t>& layers : kDivisions) {
    Machine machine(mesh_of_stages(layers));
    INFO(machine.mesh.layer_pieces().text());
    write_initial(machine.executor);
    REQUIRE(take_steps(machine.executor, machine.program) == losses);
    REQUIRE((state_of(machine.executor) == expected));
    REQUIRE(machine.executor.read_scalar(machine.program, "loss") == losses[1]);
  }
}

TEST_CASE("each stage has a plan and an arena, which has no place for what others hold") {
  Machine machine(mesh_of_stages({3, 2}));
  const std::vector<StagePlan> plans = machine.executor.stage_plans(machine.program);
  REQUIRE(plans.size() == 2);
  const auto names = [](const StagePlan& each) {
    std::vector<std::string> names;
    for (const Placement& input : each.plan->inputs) names.push_back(input.name);
    return names;
  };
  using Names = std::vector<std::string>;
  REQUIRE(plans[0].stage == 0);
  REQUIRE(names(plans[0]) == Names{"x", "table", "stack", "rate"});
  REQUIRE(plans[1].stage == 1);
  REQUIRE(names(plans[1]) == Names{"stack", "head", "rate"});
  for (const StagePlan& each : plans) REQUIRE(each.plan->use.peak == each.plan->arena_bytes);
  REQUIRE(machine.executor.arena_bytes() ==
          std::max(plans[0].plan->arena_bytes, plans[1].plan->arena_bytes));
  REQUIRE(plans[0].plan->arena_bytes != plans[1].plan->arena_bytes);
  // The plan of the program is that of the first device; its inputs are those of all stages.
  REQUIRE(&machine.executor.plan(machine.program) == plans[0].plan);
  Names inputs;
  for (const ProgramArray& input : machine.executor.inputs(machine.program))
    inputs.push_back(input.name);
  REQUIRE(inputs == Names{"x", "table", "stack", "head", "rate"});
  REQUIRE(machine.executor.outputs(machine.program).size() == 1);

  const auto device = make_test_device(1);
  Executor planning = Executor::for_planning(*device);
  const std::vector<StagePlan> planned = planning.stage_plans(add_step(planning, machine.mesh));
  REQUIRE(planned.size() == 2);
  for (size_t stage = 0; stage < 2; ++stage)
    REQUIRE(planned[stage].plan->use.peak == plans[stage].plan->use.peak);
  REQUIRE(planning.arena_bytes() == machine.executor.arena_bytes());
}

TEST_CASE("shards of a stack are one for each chunk; padding behind them stays zero") {
  Machine machine(mesh_of_stages({1, 2, 1, 1}));
  write_initial(machine.executor);
  take_steps(machine.executor, machine.program);
  const std::vector<Shard> shards = machine.executor.shards("stack");
  REQUIRE(shards.size() == 8);
  const Region blocks[] = {{{0, 0}, {1, 3}}, {{3, 0}, {1, 3}}, {{1, 0}, {2, 3}}, {{4, 0}, {1, 3}}};
  for (size_t i = 0; i < shards.size(); ++i) {
    const size_t device = i / 2;
    REQUIRE(shards[i].device == static_cast<int64_t>(device));
    REQUIRE(shards[i].block == blocks[device / 2 * 2 + i % 2]);
    REQUIRE(shards[i].owned == (device % 2 == 0));  // Devices along data hold the same.
    const int64_t row_bytes = 12;
    REQUIRE(shards[i].memory.bytes == shards[i].block.shape[0] * row_bytes);
    // Stage 0 has 2 layers, stage 1 has 3.
    if (i % 2 == 0) continue;
    REQUIRE(shards[i].memory.address == shards[i - 1].memory.address + shards[i - 1].memory.bytes);
    if (device >= 2) continue;
    DeviceBuffer padding = shards[i].memory;
    padding.address = padding.address + row_bytes;
    padding.map(HostAccess::kRead, [](std::span<const std::byte> bytes) {
      REQUIRE(std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; }));
    });
  }
}

TEST_CASE("an array on one stage has no shards on others, and its stage owns it") {
  Machine machine(mesh_of_stages({3, 2}));
  const auto owners = [&](const char* name) {
    std::vector<std::pair<int64_t, bool>> owners;
    for (const Shard& shard : machine.executor.shards(name))
      owners.emplace_back(shard.device, shard.owned);
    return owners;
  };
  using Owners = std::vector<std::pair<int64_t, bool>>;
  REQUIRE(owners("table") == Owners{{0, true}, {1, false}});
  REQUIRE(owners("head") == Owners{{2, true}, {3, false}});
  std::map<std::string, std::vector<int64_t>> stages;
  for (const Buffer& buffer : machine.executor.persistent()) stages[buffer.name] = buffer.stages;
  REQUIRE(stages == std::map<std::string, std::vector<int64_t>>{
                        {"table", {0}}, {"stack", {}}, {"head", {1}}});
}

TEST_CASE("a checkpoint of one division restores bit for bit on others and on one device") {
  for (const std::vector<int64_t>& saved_on : kDivisions) {
    Machine saved(mesh_of_stages(saved_on));
    write_initial(saved.executor);
    take_steps(saved.executor, saved.program);
    const Values expected = state_of(saved.executor);
    const TemporaryDirectory directory;
    const CheckpointStore store(directory.path());
    ProcessGroup alone;
    store.add({.step = 2}, owned_arrays(saved.executor), alone);
    const Checkpoint checkpoint = store.open(2);
    read_arrays(checkpoint);
    std::vector<Mesh> meshes = {one_device(), mesh_of_stages({4, 1}, 1)};
    for (const std::vector<int64_t>& layers : kDivisions) meshes.push_back(mesh_of_stages(layers));
    for (const Mesh& mesh : meshes) {
      Machine machine(mesh);
      restore(machine.executor, checkpoint);
      REQUIRE((state_of(machine.executor) == expected));
    }
  }
}

// A process of a run of two. Each has the devices of one stage.
struct Process {
  std::vector<float> losses;
  std::vector<std::string> buffers;
  size_t plans = 0;
  std::string error;
};

TEST_CASE("processes of different stages list the same buffers and save one checkpoint together") {
  Machine one(one_device());
  write_initial(one.executor);
  const std::vector<float> losses = take_steps(one.executor, one.program);
  const TemporaryDirectory directory;
  const CheckpointStore store(directory.path());
  const Mesh mesh = mesh_of_stages({1, 2, 1, 1});
  const auto communicators = make_communicators(4, 2);
  std::vector<Process> processes(2);
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Process& it = processes[rank];
      try {
        Communicator& communicator = *communicators[rank];
        const auto devices = make_test_devices(2, 1);
        Executor executor(pointers(devices), communicator);
        const int program = add_step(executor, mesh);
        executor.allocate();
        write_initial(executor);
        it.losses = take_steps(executor, program);
        for (const Buffer& buffer : executor.persistent())
          it.buffers.push_back(fmt::format("{} {} {}", buffer.name, buffer.type.text_sized(),
                                           fmt::join(buffer.stages, ",")));
        it.plans = executor.stage_plans(program).size();
        ProcessGroup group(communicator.options().transport);
        store.add({.step = 2}, owned_arrays(executor), group);
      } catch (const Error& error) {
        it.error = error.what();
      }
    });
  }
  threads.clear();
  for (const Process& process : processes) {
    REQUIRE(process.error == "");
    REQUIRE(process.losses == losses);
    REQUIRE(process.plans == 1);
    REQUIRE(process.buffers == processes[0].buffers);
  }
  REQUIRE(processes[0].buffers.size() == 3);
  Machine machine(one_device());
  restore(machine.executor, store.open(2));
  REQUIRE((state_of(machine.executor) == state_of(one.executor)));
}

// Reads `table` on the stages of `homes`.
int add_reader(Executor& executor, const Mesh& mesh, const StageHomes& homes) {
  Graph traced;
  const AxisRules rules;
  {
    const TraceScope trace(traced, mesh, rules);
    output("sum",
           reduce_sum(input("table", InputKind::kParameter, parse_type("f32[\"embed=3\"]"))));
  }
  const auto graph_of = [&](int64_t device, Stages) {
    Graph graph;
    const Mesh local;
    const TraceScope trace(graph, local, rules);
    const bool held = is_home(homes, "table", mesh.stage_of(device));
    const InputKind kind = held ? InputKind::kParameter : InputKind::kBatch;
    const char* const name = held ? "table" : "nothing";
    output("sum", reduce_sum(input(name, kind, parse_type("f32[\"embed=3\"]"))));
    return DeviceGraph{std::move(graph), homes};
  };
  CompileOptions options;
  options.mesh = mesh;
  return executor.add_program(traced, options, graph_of);
}

TEST_CASE("a program may read arrays only on stages that keep them up to date") {
  const auto device = make_test_device(1);
  const Mesh mesh = mesh_of_stages({3, 2});
  Executor good = Executor::for_planning(*device);
  add_step(good, mesh);
  add_reader(good, mesh, {{"table", {0}}});
  REQUIRE(good.persistent()[0].stages == std::vector<int64_t>{0});
  for (const bool step_first : {true, false}) {
    Executor bad = Executor::for_planning(*device);
    const auto add_both = [&] {
      if (step_first) add_step(bad, mesh);
      add_reader(bad, mesh, {});
      if (!step_first) add_step(bad, mesh);
    };
    REQUIRE(error_of(add_both) ==
            "'table' is updated on stage 0 by one program and read on all stages by another");
  }
}

TEST_CASE("a program without a pipeline fetches what only other stages hold") {
  for (const std::vector<int64_t>& layers : kDivisions) {
    const Mesh mesh = mesh_of_stages(layers);
    const auto devices = make_test_devices(4, 1);
    const auto communicator = make_test_communicator({.local_devices = 4});
    Executor executor(pointers(devices), *communicator);
    const int step = add_step(executor, mesh);
    Graph reader;
    {
      const AxisRules rules;
      const TraceScope trace(reader, mesh, rules);
      const Tensor table = input("table", InputKind::kParameter, parse_type("f32[\"embed=3\"]"));
      const Tensor head = input("head", InputKind::kState, parse_type("f32[\"out=7\"]"));
      const Tensor stack =
          input("stack", InputKind::kParameter, parse_type("f32[\"layers/stage=5 embed=3\"]"));
      output("product", table * reduce_sum(head));
      output("table", table);
      output("layers", reshard(stack, parse_type("f32[\"layers=5 embed=3\"]")));
    }
    CompileOptions options;
    options.mesh = mesh;
    options.verify_passes = true;
    const int program = executor.add_program(reader, options);
    executor.allocate();
    write_initial(executor);
    take_steps(executor, step);
    executor.run(program);
    REQUIRE(executor.persistent()[0].stages == std::vector<int64_t>{0});
    const Values state = state_of(executor);
    const auto numbers = [](const Bytes& bytes) {
      return decode_values(
          make_type(DType::kF32, {{"i", static_cast<int64_t>(bytes.size()) / 4, {}}}),
          bytes.data());
    };
    double head = 0.0;
    for (const double each : numbers(state.at("head"))) head += each;
    std::vector<double> expected = numbers(state.at("table"));
    for (double& each : expected) each *= head;
    Bytes product(12), table(12), stack(60);
    executor.read_output(program, "product", product);
    executor.read_output(program, "table", table);
    executor.read_output(program, "layers", stack);
    REQUIRE(numbers(product) == expected);
    REQUIRE(table == state.at("table"));
    REQUIRE(stack == state.at("stack"));
  }
}

}  // namespace
}  // namespace tessera
