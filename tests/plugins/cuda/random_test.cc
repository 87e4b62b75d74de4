// SPDX-License-Identifier: Apache-2.0
// Tests positions, random numbers and dropout on the virtual GPU: they have the CPU's bits.
#include "core/ops/random.h"

#include "core/graph/op.h"
#include "core/ops/generator.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

using Tensors = std::vector<Tensor>;

Graph traced(const std::vector<std::string>& types, const Application& apply) {
  Trial trial(Mesh(), types);
  trial.graph().add_output("y", apply(trial.inputs()).id());
  return trial.graph();
}

const Mesh kMesh = Mesh::standard({2, 2, 2});

// Returns how the GPU's bits differ from the CPU's on the shards of each device of the mesh.
std::string difference_on_mesh(TestDevices& devices, const std::vector<std::string>& types,
                               const Application& apply) {
  Trial trial(kMesh, types);
  trial.graph().add_output("y", apply(trial.inputs()).id());
  return difference_on_shards(trial.graph(), kMesh, *devices.gpu, *devices.cpu);
}

TEST_CASE("Positions in generators are global") {
  TestDevices devices;
  const Axis axis{"positions", 24, {"mdl", "data"}};
  REQUIRE(difference_on_mesh(devices, {}, [&](const Tensors&) { return iota(axis); }) == "");
  REQUIRE(difference_on_mesh(devices, {}, [](const Tensors&) {
            return causal_mask({"seq", 8, {"data"}}, {"key_seq", 12, {"mdl", "replica"}});
          }) == "");
  REQUIRE(difference_on_mesh(devices, {"i32[\"batch/replica=4\"]"}, [&](const Tensors& in) {
            return one_hot(in[0], axis, DType::kF32);
          }) == "");
}

TEST_CASE("Random numbers and dropout of a shard have the CPU's bits") {
  TestDevices devices;
  const std::string axes = GENERATE("batch/data=4 embed/mdl=10", "batch=3 seq=7 embed/mdl/data=96",
                                    "batch/replica=2 seq/data=6 embed/mdl=22",
                                    "batch/mdl/data=8 embed=5", "batch/replica/data/mdl=8 embed=64",
                                    "batch=1 embed/data/mdl/replica=8", "batch=3 embed=1001");
  CAPTURE(axes);
  const std::vector<Axis> made = parse_type("f32[\"" + axes + "\"]").axes;
  REQUIRE(difference_on_mesh(devices, {"i32[\"\"]"},
                             [&](const Tensors& in) { return random_uniform(made, in[0]); }) == "");
  for (const std::string dtype : {"f32", "bf16"})
    REQUIRE(difference_on_mesh(devices, {dtype + "[\"" + axes + "\"]", "i32[\"\"]"},
                               [](const Tensors& in) { return dropout(in[0], 0.4, in[1]); }) == "");
  for (const int64_t stride : {1, 3})
    REQUIRE(difference_on_mesh(devices, {"bf16[\"" + axes + "\"]", "i32[\"\"]", "i32[\"\"]"},
                               [&](const Tensors& in) {
                                 const ExampleScope part(in[2], stride);
                                 return dropout(in[0], 0.4, in[1]);
                               }) == "");
}

TEST_CASE("Dropout draws by seed, path, layer and step, in place and at odd addresses") {
  TestDevices devices;
  const auto dropped = [](const std::string& path, int64_t seed) {
    return traced({"f32[\"batch=5 embed=129\"]", "i32[\"\"]"}, [&](const Tensors& in) {
      const SeedScope seeded(seed);
      const PathScope scope(path);
      return dropout(in[0], 0.3, in[1]);
    });
  };
  const Graph graph = dropped("x_layers[2].drop", 17);
  ReferenceInputs inputs = random_inputs(graph, 3);
  const GraphResults expected = run_launched(*devices.cpu, graph, inputs);
  for (const OperandPlace placement : {OperandPlace{}, {.shift = 1}, {.in_place = true}})
    REQUIRE(element_difference(run_launched(*devices.gpu, graph, inputs, placement), expected) ==
            "");
  for (const Graph& other : {dropped("x_layers[3].drop", 17), dropped("y[2].drop", 17),
                             dropped("x_layers[2].drop", 18)}) {
    const GraphResults got = run_launched(*devices.gpu, other, inputs);
    REQUIRE(element_difference(got, run_launched(*devices.cpu, other, inputs)) == "");
    REQUIRE(got != expected);
  }
  inputs.at("y")[0] = -7;
  const GraphResults later = run_launched(*devices.gpu, graph, inputs);
  REQUIRE(element_difference(later, run_launched(*devices.cpu, graph, inputs)) == "");
  REQUIRE(later != expected);
}

TEST_CASE("The index of a loop over layers is the layer") {
  TestDevices devices;
  Graph graph = traced({"f32[\"batch=2 embed=16\"]", "i32[\"\"]"}, [](const Tensors& in) {
    const PathScope scope("x_layers[0].drop");
    return dropout(in[0], 0.3, in[1]);
  });
  ReferenceInputs inputs = random_inputs(graph, 3);
  const GraphResults first = run_launched(*devices.gpu, graph, inputs);
  const ValueId index = graph.add_input("index", InputKind::kLoop, make_type(DType::kI32, {}));
  Node& node = graph.node(graph.value(graph.find_output("y")->value).producer);
  node.inputs.push_back(index);
  node.attributes.set(key::kLoop, true);
  node.attributes.set(key::kLayer, -1);
  for (const double layer : {0.0, 5.0}) {
    inputs["index"] = {layer};
    const GraphResults got = run_launched(*devices.gpu, graph, inputs);
    REQUIRE(element_difference(got, run_launched(*devices.cpu, graph, inputs)) == "");
    REQUIRE((got == first) == (layer == 0.0));
  }
}

}  // namespace
}  // namespace tessera::cuda
