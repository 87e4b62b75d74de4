// SPDX-License-Identifier: Apache-2.0
// Tests generated elementwise kernels on the virtual GPU: against the reference interpreter in
// double precision, and bit for bit against the CPU.
#include "core/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/ops/generator.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/device/nvrtc.h"
#include "plugins/cuda/kernels/elementwise/program.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/launched_graph.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

using Tensors = std::vector<Tensor>;

// Returns a graph of one node: the fused trace, or its only op.
Graph one_node(const std::vector<std::string>& types, const Application& apply) {
  Trial trial(Mesh(), types);
  trial.graph().add_output("y", apply(trial.inputs()).id());
  return trial.graph().nodes().size() > 1 ? fuse_all(trial.graph()) : trial.graph();
}

// Returns how the GPU's bits differ from the CPU's, with values at aligned and at odd addresses.
std::string difference_from_cpu(TestDevices& devices, const std::vector<std::string>& types,
                                const Application& apply) {
  const Graph graph = one_node(types, apply);
  const ReferenceInputs inputs = random_inputs(graph, 5, 9);
  const GraphResults expected = run_launched(*devices.cpu, graph, inputs);
  const std::string aligned =
      element_difference(run_launched(*devices.gpu, graph, inputs), expected);
  if (!aligned.empty()) return aligned;
  return element_difference(run_launched(*devices.gpu, graph, inputs, {.shift = 1}), expected);
}

TEST_CASE("Every elementwise op and foldable generator has device code") {
  for (const OpDef* op : all_ops()) {
    INFO(op->name);
    const bool expected = op->op_class == OpClass::kElementwise || op->fusible || op->foldable;
    REQUIRE(has_program(*op) == expected);
  }
}

TEST_CASE("Op cases of elementwise, generator and random kernels agree with the reference") {
  TestDevices devices;
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const OpCase& row : all_op_cases()) {
    if (!has_program(*row.op) && row.op != &kRandomUniformOp && row.op != &kDropoutOp) continue;
    if (dtype != DType::kF32 && !takes_floats(row)) continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
  }
}

TEST_CASE("Functions of one number are accurate everywhere") {
  TestDevices devices;
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> points = {0.0,  -0.0,  1e-30, -1e-30, 1e-4,  -1e-4,    0.5,       -0.5,
                                      3.0,  -3.0,  5.5,   -5.5,   8.5,   -8.5,     20.0,      -20.0,
                                      87.0, -87.0, 100.0, -100.0, 1e4,   -1e4,     1e6,       -1e6,
                                      2e5,  0.7,   1.0,   1.0001, 3e-39, infinity, -infinity, nan};
  for (const OpDef* op : all_ops()) {
    const auto [first, second, third] = op->element.operands;
    if (first == Domain::kAbsent || first == Domain::kBool || second != Domain::kAbsent) continue;
    INFO(op->name);
    ReferenceInputs inputs;
    for (const double point : points) {
      if (first == Domain::kPositive && !(point > 0.0)) continue;
      // The reference has no NaN here: relu returns the other operand, and NaN has no sign.
      if (std::isnan(point) && (op == &kReluOp || op == &kSignOp)) continue;
      inputs["x"].push_back(static_cast<float>(point));
    }
    const Graph graph = one_node(
        {fmt::format("f32[\"a={}\"]", inputs["x"].size())},
        [&](const Tensors& in) { return trace_op(*op, {in[0]}, {}, SourceSite::current()); });
    REQUIRE(element_difference(run_launched(*devices.gpu, graph, inputs),
                               rounded_reference(graph, inputs),
                               {.relative = 2e-6, .absolute = 5e-7}) == "");
  }
}

// Operands of one shape, rows, columns, scalars, outer products, another order of axes.
const std::pair<const char*, const char*> kBroadcasts[] = {
    {"a=3 b=5 c=7", "a=3 b=5 c=7"},
    {"a=3 b=5 c=40", "c=40"},
    {"a=30 b=12", "a=30"},
    {"a=3 b=5 c=7", "b=5"},
    {"a=33 b=65", ""},
    {"", "a=3 b=9"},
    {"", ""},
    {"a=41", "b=37"},
    {"a=16 b=6 c=2 d=3", "d=3 c=2 a=16"},
    {"a=24 b=16", "b=16 a=24"},
};

TEST_CASE("Broadcast operands give the CPU's bits at any alignment") {
  TestDevices devices;
  for (const auto& [a, b] : kBroadcasts) {
    INFO(a << " with " << b);
    for (const char* dtype : {"f32", "bf16"}) {
      const std::vector<std::string> types = {fmt::format("{}[\"{}\"]", dtype, a),
                                              fmt::format("{}[\"{}\"]", dtype, b)};
      REQUIRE(difference_from_cpu(devices, types, [](const Tensors& in) {
                return in[0] * in[1] - in[0] / (square(in[1]) + 0.5);
              }) == "");
    }
  }
}

TEST_CASE("A product that is added is rounded first, as on the CPU") {
  TestDevices devices;
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string type = fmt::format("{}[\"a=999\"]", dtype);
    REQUIRE(difference_from_cpu(devices, {type, type, type}, [](const Tensors& in) {
              return in[0] * in[1] + in[2] - scale(in[1], 0.1);
            }) == "");
  }
}

TEST_CASE("Integers and truth values have the CPU's bits") {
  TestDevices devices;
  using Binary = Tensor (*)(Operand, Operand);
  for (const Binary op : {Binary(add), Binary(sub), Binary(mul), Binary(maximum), Binary(minimum),
                          Binary(equal), Binary(less), Binary(less_equal)})
    REQUIRE(
        difference_from_cpu(devices, {"i32[\"a=37 b=3\"]", "i32[\"b=3\"]"}, [&](const Tensors& in) {
          return op(neg(in[0]) + constant(2147483647, DType::kI32), in[1]);
        }) == "");
  REQUIRE(difference_from_cpu(devices, {"i32[\"a=37\"]"}, [](const Tensors& in) {
            return abs(sub(in[0], mul(in[0], in[0]))) + sign(neg(in[0]));
          }) == "");
  for (const Binary op : {Binary(logical_and), Binary(logical_or), Binary(equal)})
    REQUIRE(difference_from_cpu(devices, {"bool[\"a=37 b=16\"]", "bool[\"a=37\"]"},
                                [&](const Tensors& in) { return logical_not(op(in[0], in[1])); }) ==
            "");
  for (const char* dtype : {"f32", "bf16", "i32", "bool"}) {
    const std::string type = fmt::format("{}[\"a=37 b=5\"]", dtype);
    REQUIRE(difference_from_cpu(devices, {"bool[\"a=37\"]", type, type}, [](const Tensors& in) {
              return where(in[0], in[1], in[2]);
            }) == "");
  }
}

TEST_CASE("Casts between all dtypes have the CPU's bits") {
  TestDevices devices;
  for (const char* from : {"f32", "bf16", "i32", "bool"}) {
    for (const DType to : {DType::kF32, DType::kBF16, DType::kI32, DType::kBool}) {
      INFO(from << " to " << dtype_name(to));
      REQUIRE(difference_from_cpu(devices, {fmt::format("{}[\"a=131\"]", from)},
                                  [&](const Tensors& in) { return cast(in[0], to); }) == "");
    }
  }
  // An intermediate bf16 value is rounded, even if it stays in a register.
  REQUIRE(difference_from_cpu(devices, {"f32[\"a=131\"]"}, [](const Tensors& in) {
            return cast(cast(in[0], DType::kBF16), DType::kF32) * in[0];
          }) == "");
}

TEST_CASE("Generators alone and inside fused loops have the CPU's bits") {
  TestDevices devices;
  const std::vector<Application> makers = {
      [](const Tensors&) {
        return constant(2.5, DType::kBF16, {{"a", 70}});
      },
      [](const Tensors&) {
        return constant(-0.1, DType::kF32, {{"a", 3}});
      },
      [](const Tensors&) { return constant(3, DType::kI32); },
      [](const Tensors&) {
        return constant(1, DType::kBool, {{"a", 33}});
      },
      [](const Tensors&) {
        return constant(-std::numeric_limits<double>::infinity(), DType::kF32, {{"a", 5}});
      },
      [](const Tensors&) {
        return iota({"a", 1500});
      },
      [](const Tensors&) {
        return causal_mask({"q", 33}, {"k", 40});
      },
      [](const Tensors& in) {
        return one_hot(in[0], {"v", 4}, DType::kBF16);
      },
      [](const Tensors& in) {
        return one_hot(in[0], {"v", 5}, DType::kI32);
      },
      [](const Tensors& in) {
        return cast(one_hot(in[0], {"v", 5}, DType::kF32) + 0.25, DType::kBF16);
      },
      [](const Tensors& in) {
        return broadcast(in[0], {{"c", 8}}, "a c b");
      },
  };
  for (size_t i = 0; i < makers.size(); ++i) {
    INFO(i);
    const std::vector<std::string> ids = {"i32[\"a=9 b=5\"]"};
    REQUIRE(difference_from_cpu(devices, i < 7 ? std::vector<std::string>() : ids, makers[i]) ==
            "");
  }
}

// Builds a program on a matrix x, a row and a column, with several results, one in bf16.
Graph long_program(int64_t rows, int64_t columns) {
  Trial trial(Mesh(), {fmt::format("bf16[\"a={} b={}\"]", rows, columns),
                       fmt::format("f32[\"b={}\"]", columns), fmt::format("f32[\"a={}\"]", rows)});
  const Tensor x = cast(trial.inputs()[0], DType::kF32);
  const Tensor row = trial.inputs()[1], column = trial.inputs()[2];
  const Tensor y = x * row + column;
  Tensor z = relu(y) * x;
  for (int i = 0; i < 12; ++i) z = z * 0.5 + y * x - scale(row, 0.125);
  trial.graph().add_output("y", y.id());
  trial.graph().add_output("z", cast(z, DType::kBF16).id());
  trial.graph().add_output("sum", (z + y).id());
  return fuse_all(trial.graph());
}

TEST_CASE("A long program with several results has the CPU's bits") {
  TestDevices devices;
  for (const auto& [rows, columns] : {std::pair(37, 130), {5, 48}, {1, 77}, {64, 1}}) {
    INFO(rows << " x " << columns);
    const Graph graph = long_program(rows, columns);
    const ReferenceInputs inputs = random_inputs(graph, 5);
    REQUIRE(element_difference(run_launched(*devices.gpu, graph, inputs),
                               run_launched(*devices.cpu, graph, inputs)) == "");
  }
}

TEST_CASE("Only an operand that lies as the result does may share its memory") {
  TestDevices devices;
  const auto overwrites = [&](const std::vector<std::string>& types, const Application& apply,
                              int64_t input) {
    const Graph graph = one_node(types, apply);
    return devices.gpu->prepare(graph, graph.nodes().front())->may_overwrite(0, input);
  };
  const auto sum = [](const Tensors& in) { return in[0] + in[1]; };
  REQUIRE(overwrites({"f32[\"a=8 b=8\"]", "f32[\"b=8\"]"}, sum, 0));
  REQUIRE_FALSE(overwrites({"f32[\"a=8 b=8\"]", "f32[\"b=8\"]"}, sum, 1));
  REQUIRE_FALSE(overwrites({"f32[\"a=8 b=8\"]", "f32[\"b=8 a=8\"]"}, sum, 1));
  REQUIRE_FALSE(overwrites(
      {"bf16[\"a=8\"]"}, [](const Tensors& in) { return cast(in[0], DType::kF32); }, 0));
  for (const char* axes : {"a=1000", ""}) {
    const std::string type = fmt::format("f32[\"{}\"]", axes);
    const Graph graph = one_node(
        {type, type}, [](const Tensors& in) { return maximum(in[0], in[1]) * in[1] - in[0]; });
    const ReferenceInputs inputs = random_inputs(graph, 11);
    REQUIRE(element_difference(run_launched(*devices.gpu, graph, inputs, {.in_place = true}),
                               run_launched(*devices.cpu, graph, inputs)) == "");
  }
}

TEST_CASE("Equal programs are compiled once, for old drivers too") {
  const auto text_of = [](int64_t rows, int64_t columns) {
    const Graph graph = long_program(rows, columns);
    return make_program(graph, graph.nodes().front());
  };
  const auto compiled = [](const ElementwiseProgram& program) {
    return &compile_text(program.name, program.text);
  };
  REQUIRE(compiled(text_of(5, 48)) == compiled(text_of(5, 48)));
  REQUIRE(compiled(text_of(5, 48)) != compiled(text_of(6, 48)));
  REQUIRE(compiled(text_of(5, 48))->key != compiled(text_of(6, 48))->key);
  // The PTX version of the oldest supported driver.
  REQUIRE_THAT(compiled(text_of(5, 48))->ptx, Catch::Contains("\n.version 8.4\n.target sm_80\n"));
}

TEST_CASE("Programs move 16 bytes at a time where rows are whole vectors") {
  const auto items = [](const std::string& type, const std::string& other) {
    const Graph graph = one_node({type, other}, [](const Tensors& in) { return in[0] + in[1]; });
    return make_program(graph, graph.nodes().front()).items;
  };
  REQUIRE(items("f32[\"a=6 b=32\"]", "f32[\"b=32\"]") == 6 * 8);
  REQUIRE(items("bf16[\"a=6 b=32\"]", "bf16[\"b=32\"]") == 6 * 4);
  REQUIRE(items("bf16[\"a=6 b=12\"]", "bf16[\"b=12\"]") == 6 * 3);
  REQUIRE(items("f32[\"a=6 b=7\"]", "f32[\"b=7\"]") == 6 * 7);
  REQUIRE(items("f32[\"a=6 b=7\"]", "f32[\"a=6 b=7\"]") == 11);
  const Graph graph = one_node({"bf16[\"a=131072 b=65536\"]", "bf16[\"b=65536\"]"},
                               [](const Tensors& in) { return in[0] + in[1]; });
  REQUIRE(make_program(graph, graph.nodes().front()).text.find("const u64 base") !=
          std::string::npos);
}

TEST_CASE("Ops and dtypes without device code are Errors") {
  const Graph wide = one_node({"f64[\"a=3\"]"}, [](const Tensors& in) { return in[0] + in[0]; });
  REQUIRE(error_of([&] { make_program(wide, wide.nodes().front()); }) ==
          "the CUDA backend computes in f32, bf16, i32 and bool, not in f64; cast it");
  // A user-defined op inside a fused node.
  const OpDef leaky{.name = "leaky",
                    .op_class = OpClass::kElementwise,
                    .element = {{Domain::kReal}, [](const double* x) { return 0.1 * x[0]; }}};
  const Type type = parse_type("f32[\"a=3\"]");
  Graph graph;
  Node node{.op = &leaky, .inputs = {graph.add_input("x", InputKind::kBatch, type)}};
  node.site = {"layers/leaky.cc", 12};
  const NodeId id = graph.add_node(node, {type});
  graph.add_output("y", graph.node(id).outputs[0]);
  const Graph fused = fuse_all(graph);
  REQUIRE_FALSE(has_program(leaky));
  REQUIRE_THAT(error_of([&] { make_program(fused, fused.nodes().front()); }),
               Catch::Contains("leaky.cc:12: the CUDA backend has no leaky for f32; write it with "
                               "other ops or use --device=cpu"));
}

TEST_CASE("A missing NVRTC is an error of one line that says what to install") {
  const TemporaryDirectory folder;
  const std::string build = TESSERA_BINARY_DIR;
  const Outcome outcome =
      shell(folder.path(), fmt::format("env TESSERA_CUDA_DRIVER='{0}/lib/virtual_gpu/libcuda.so.1' "
                                       "TESSERA_CUDA_NVRTC=/nowhere/libnvrtc.so "
                                       "'{0}/bin/runexp' --mode=selfcheck --device=cuda",
                                       build));
  INFO(outcome.errors);
  REQUIRE(outcome.exit_code != 0);
  REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
  REQUIRE_THAT(
      outcome.errors,
      Catch::Contains("--device=cuda: elementwise kernels are compiled with NVRTC, which "
                      "was not found: /nowhere/libnvrtc.so: ") &&
          Catch::Contains("; install the CUDA toolkit, or set TESSERA_CUDA_NVRTC to the file"));
}

}  // namespace
}  // namespace tessera::cuda
