// SPDX-License-Identifier: Apache-2.0
// The tile interpreter against the reference: every op, dtype and broadcast pattern, fused and not,
// on each vector target.
#include "core/ops/elementwise.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <hwy/targets.h>

#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// Runs `body` once for each vector target of this processor.
void on_each_target(const std::function<void()>& body) {
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::string difference(const Mesh& mesh, const std::vector<std::string>& types,
                       const Application& apply, Tolerance tolerance = {},
                       const std::function<void(ReferenceInputs&)>& prepare = {}) {
  static const std::unique_ptr<Device> device = make_cpu_device(3);
  Trial trial(mesh, types);
  const Tensor y = apply(trial.inputs());
  trial.graph().add_output("y", y.id());
  ReferenceInputs inputs = random_inputs(trial.graph(), 7);
  if (prepare) prepare(inputs);
  std::string message;
  on_each_target([&] {
    for (const Graph& graph : {trial.graph(), fuse_all(trial.graph())}) {
      const std::string found = difference_from_reference(graph, inputs, *device, tolerance);
      if (!found.empty()) {
        message = fmt::format("{} on {}: {}", graph.nodes().front().op->name,
                              hwy::TargetName(hwy::SupportedTargets()), found);
      }
    }
  });
  return message;
}

std::string difference(const std::vector<std::string>& types, const Application& apply,
                       Tolerance tolerance = {}) {
  return difference(Mesh(), types, apply, tolerance);
}

using Unary = Tensor (*)(Operand);
using Binary = Tensor (*)(Operand, Operand);

struct UnaryRow {
  std::string_view name;
  std::function<Tensor(const Tensor&)> op;
  bool positive = false;
};

// The ops that are a function of one number.
std::vector<UnaryRow> unary_rows() {
  std::vector<UnaryRow> rows;
  for (const OpDef* op : all_ops()) {
    const auto [first, second, third] = op->element.operands;
    if (first == Domain::kAbsent || first == Domain::kBool || second != Domain::kAbsent) continue;
    rows.push_back({op->name,
                    [op](const Tensor& x) { return trace_op(*op, {x}, {}, SourceSite::current()); },
                    first == Domain::kPositive});
  }
  return rows;
}

TEST_CASE("Unary ops agree with the reference in f32 and bf16, at all sizes") {
  for (const UnaryRow& row : unary_rows()) {
    INFO(row.name);
    for (const char* dtype : {"f32", "bf16"}) {
      for (const int size : {1, 3, 16, 17, 1000, 4099}) {
        const std::string type = fmt::format("{}[\"a={}\"]", dtype, size);
        REQUIRE(difference(
                    Mesh(), {type}, [&](const std::vector<Tensor>& in) { return row.op(in[0]); },
                    {},
                    [&](ReferenceInputs& inputs) {
                      if (!row.positive) return;
                      for (double& x : inputs.at("x")) x = std::max(std::abs(x), 0.015625);
                    }) == "");
      }
    }
  }
}

TEST_CASE("Unary ops are accurate far from zero and at its edges") {
  const std::vector<double> points = {0.0,  -0.0,  1e-30, -1e-30, 1e-4, -1e-4, 0.5,  -0.5,
                                      3.0,  -3.0,  5.5,   -5.5,   8.5,  -8.5,  20.0, -20.0,
                                      87.0, -87.0, 100.0, -100.0, 1e4,  -1e4,  1e6,  -1e6};
  for (const UnaryRow& row : unary_rows()) {
    INFO(row.name);
    for (const double point : points) {
      if (row.positive && point <= 0.0) continue;
      // Angles of a million have lost half their bits; exponentials beyond 88 are infinite in f32.
      const std::string_view name = row.name;
      if ((name == "exp" || name == "square") && std::abs(point) > 88.0) continue;
      INFO(point);
      // One value alone, so that nothing hides behind a larger neighbour; gelu's 1 + erf cancels.
      REQUIRE(difference(
                  Mesh(), {"f32[\"a=5\"]"},
                  [&](const std::vector<Tensor>& in) { return row.op(in[0]); },
                  {.relative = 2e-6, .absolute = 5e-7},
                  [&](ReferenceInputs& inputs) {
                    for (double& x : inputs.at("x")) x = static_cast<float>(point);
                  }) == "");
    }
  }
}

TEST_CASE("NaN and infinity come through as in the standard library") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const UnaryRow& row : unary_rows()) {
    INFO(row.name);
    for (const double point : {nan, infinity, -infinity, 0.0}) {
      const std::string_view name = row.name;
      // ±infinity times zero, and the sign of a NaN, are conventions of the formula.
      if (!std::isnan(point) && (name.find("lu") != name.npos && name != "relu")) continue;
      if (name == "sign" || name == "relu") continue;
      INFO(point);
      REQUIRE(difference(
                  Mesh(), {"f32[\"a=5\"]"},
                  [&](const std::vector<Tensor>& in) { return row.op(in[0]); }, {},
                  [&](ReferenceInputs& inputs) {
                    for (double& x : inputs.at("x")) x = point;
                  }) == "");
    }
  }
}

const std::pair<const char*, Binary> kBinary[] = {
    {"add", add},
    {"sub", sub},
    {"mul", mul},
    {"div", div},
    {"maximum", maximum},
    {"minimum", minimum},
    {"equal", equal},
    {"less", less},
    {"less_equal", less_equal},
    {"tanh_grad", tanh_grad},
    {"sigmoid_grad", sigmoid_grad},
    {"relu_grad", relu_grad},
    {"silu_grad", silu_grad},
    {"gelu_grad", gelu_grad},
    {"gelu_tanh_grad", gelu_tanh_grad},
};

// Operands of one shape, rows, columns, scalars, outer products, another order of axes.
const std::pair<const char*, const char*> kBroadcasts[] = {
    {"a=3 b=5 c=7", "a=3 b=5 c=7"},
    {"a=3 b=5 c=70", "c=70"},
    {"a=30 b=50", "a=30"},
    {"a=3 b=5 c=7", "b=5"},
    {"a=33 b=65", ""},
    {"", "a=3 b=9"},
    {"a=41", "b=37"},
    {"a=4 b=1030", "b=1030"},
    {"a=1030 b=2", "a=1030"},
    {"a=40 b=6 c=2 d=3", "d=3 c=2 a=40"},
    {"a=7 b=2100", "a=7"},
    {"a=31 b=33", "b=33 a=31"},
};

TEST_CASE("Binary ops agree with the reference however their operands are broadcast") {
  for (const auto& [name, op] : kBinary) {
    INFO(name);
    for (const auto& [a, b] : kBroadcasts) {
      INFO(a << " with " << b);
      // A gradient's operands have one order of axes, or one has the other's.
      const bool gradient = std::string_view(name).ends_with("_grad");
      if (gradient && (std::string_view(a) == "a=41" || std::string_view(b) == "b=33 a=31"))
        continue;
      for (const char* dtype : {"f32", "bf16"}) {
        REQUIRE(
            difference({fmt::format("{}[\"{}\"]", dtype, a), fmt::format("{}[\"{}\"]", dtype, b)},
                       [&](const std::vector<Tensor>& in) { return op(in[0], in[1]); },
                       {.relative = 4e-6}) == "");
      }
    }
  }
}

TEST_CASE("Integers and truth values") {
  const Binary binary[] = {add, sub, mul, maximum, minimum, equal, less, less_equal};
  for (size_t i = 0; i < std::size(binary); ++i) {
    INFO(i);
    REQUIRE(difference({"i32[\"a=37 b=3\"]", "i32[\"b=3\"]"}, [&](const std::vector<Tensor>& in) {
              return binary[i](in[0], in[1]);
            }) == "");
  }
  for (const Unary unary : {Unary(neg), Unary(abs), Unary(sign)}) {
    REQUIRE(difference({"i32[\"a=37\"]"}, [&](const std::vector<Tensor>& in) {
              return unary(sub(in[0], mul(in[0], in[0])));
            }) == "");
  }
  for (const Binary op : {Binary(logical_and), Binary(logical_or), Binary(equal)}) {
    REQUIRE(
        difference({"bool[\"a=37 b=5\"]", "bool[\"a=37\"]"}, [&](const std::vector<Tensor>& in) {
          return logical_not(op(in[0], in[1]));
        }) == "");
  }
  for (const char* dtype : {"f32", "bf16", "i32"}) {
    const std::string type = fmt::format("{}[\"a=37 b=5\"]", dtype);
    REQUIRE(difference({"bool[\"a=37\"]", type, type}, [&](const std::vector<Tensor>& in) {
              return mask(where(in[0], in[1], in[2]), in[0]);
            }) == "");
  }
}

TEST_CASE("Casts between all dtypes") {
  for (const char* from : {"f32", "bf16", "i32", "bool"}) {
    for (const DType to : {DType::kF32, DType::kBF16, DType::kI32, DType::kBool}) {
      INFO(from << " to " << dtype_name(to));
      REQUIRE(difference({fmt::format("{}[\"a=1031\"]", from)},
                         [&](const std::vector<Tensor>& in) { return cast(in[0], to); }) == "");
    }
  }
}

TEST_CASE("A cast to bf16 rounds, even where the value stays in a fused loop") {
  Trial trial(Mesh(), {"f32[\"a=1000\"]"});
  const Tensor x = trial.inputs()[0];
  trial.graph().add_output("y", cast(cast(x, DType::kBF16), DType::kF32).id());
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const ReferenceInputs inputs = random_inputs(trial.graph(), 3);
  const auto got = run_on_cpu(fuse_all(trial.graph()), inputs, *device).at("y");
  for (size_t i = 0; i < got.size(); ++i) {
    const float rounded = static_cast<float>(BFloat16(static_cast<float>(inputs.at("x")[i])));
    REQUIRE(got[i] == rounded);
  }
}

TEST_CASE("A fused loop in bf16 has the bits of its nodes one by one") {
  const std::string type = "bf16[\"a=1003\"]";
  Trial trial(Mesh(), {type, type, type, "f32[\"a=1003\"]"});
  const Tensor x = abs(trial.inputs()[0]) + 0.125, y = trial.inputs()[1], dy = trial.inputs()[2];
  output("wide", x * y + dy - cast(trial.inputs()[3], DType::kBF16));
  output("gated gradient", silu_grad(x, dy * y) + dy * silu(x));
  output("slope", soft_cap_grad(y, dy, 2.0));
  for (const UnaryRow& row : unary_rows()) {
    INFO(row.name);
    const Tensor value = row.op(x);
    Graph& graph = trial.graph();
    graph.add_output(std::string(row.name) + " alone", value.id());
    graph.add_output(std::string(row.name) + " read", scale(cast(value, DType::kF32), 0.7).id());
  }
  const ReferenceInputs inputs = random_inputs(trial.graph(), 5);
  const std::unique_ptr<Device> device = make_cpu_device(2);
  on_each_target([&] {
    const auto one_by_one = run_on_cpu(trial.graph(), inputs, *device);
    for (const auto& [name, values] : run_on_cpu(fuse_all(trial.graph()), inputs, *device)) {
      INFO(name);
      REQUIRE(values == one_by_one.at(name));
    }
  });
}

TEST_CASE("Generators stand for themselves and inside fused loops") {
  REQUIRE(difference({}, [](const auto&) {
            return constant(2.5, DType::kBF16, {{"a", 70}});
          }) == "");
  REQUIRE(difference({}, [](const auto&) { return constant(3, DType::kI32); }) == "");
  REQUIRE(difference({}, [](const auto&) { return iota({"a", 1500}); }) == "");
  REQUIRE(difference({}, [](const auto&) { return causal_mask({"q", 33}, {"k", 40}); }) == "");
  REQUIRE(difference({"i32[\"a=9 b=5\"]"}, [](const std::vector<Tensor>& in) {
            return one_hot(in[0], {"v", 4}, DType::kBF16);
          }) == "");
  REQUIRE(difference({"f32[\"a=9 v=5\"]", "i32[\"a=9\"]"}, [](const std::vector<Tensor>& in) {
            return in[0] * one_hot(in[1], {"v", 5}, DType::kF32) + 0.25;
          }) == "");
  REQUIRE(difference({"f32[\"a=9\"]"}, [](const std::vector<Tensor>& in) {
            return broadcast(in[0], {{"b", 5}}, "a b");
          }) == "");
}

TEST_CASE("A long program with several results and a value used often") {
  Trial trial(Mesh(), {"bf16[\"a=37 b=130\"]", "f32[\"b=130\"]", "f32[\"a=37\"]"});
  const Tensor x = cast(trial.inputs()[0], DType::kF32);
  const Tensor row = trial.inputs()[1], column = trial.inputs()[2];
  Tensor y = x * row + column;
  Tensor z = silu(y) * sigmoid(x);
  for (int i = 0; i < 12; ++i) z = z * 0.5 + y * x - scale(row, 0.125);
  trial.graph().add_output("y", y.id());
  trial.graph().add_output("z", cast(z, DType::kBF16).id());
  trial.graph().add_output("sum", (z + y).id());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 5);
  const std::unique_ptr<Device> device = make_cpu_device(2);
  on_each_target(
      [&] { REQUIRE(difference_from_reference(fuse_all(trial.graph()), inputs, *device) == ""); });
}

TEST_CASE("Only an operand that lies as the result does may share its memory") {
  Trial trial(Mesh(), {"f32[\"a=8 b=8\"]", "f32[\"b=8\"]", "bf16[\"a=8 b=8\"]"});
  const Tensor sum = trial.inputs()[0] + trial.inputs()[1];
  const Tensor wide = cast(trial.inputs()[2], DType::kF32);
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const auto kernel = [&](const Tensor& tensor) {
    const Graph& graph = trial.graph();
    return device->prepare(graph, graph.node(graph.value(tensor.id()).producer));
  };
  REQUIRE(kernel(sum)->may_overwrite(0, 0));
  REQUIRE_FALSE(kernel(sum)->may_overwrite(0, 1));
  REQUIRE_FALSE(kernel(wide)->may_overwrite(0, 0));
}

TEST_CASE("A program in the memory of its operand gives the same") {
  Trial trial(Mesh(), {"f32[\"a=5000\"]", "f32[\"a=5000\"]"});
  const Tensor x = trial.inputs()[0], y = trial.inputs()[1];
  trial.graph().add_output("z", (exp(x) * y - x).id());
  const Graph fused = fuse_all(trial.graph());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 11);
  const std::unique_ptr<Device> device = make_cpu_device(2);
  const auto expected = run_on_cpu(fused, inputs, *device).at("z");
  const std::unique_ptr<Kernel> kernel = device->prepare(fused, fused.nodes().front());
  REQUIRE(kernel->may_overwrite(0, 0));
  std::vector<float> a(inputs.at("x").begin(), inputs.at("x").end());
  std::vector<float> b(inputs.at("y").begin(), inputs.at("y").end());
  std::vector<std::byte> scratch(static_cast<size_t>(kernel->scratch_bytes()));
  const std::byte* const from[] = {reinterpret_cast<std::byte*>(a.data()),
                                   reinterpret_cast<std::byte*>(b.data())};
  std::byte* const to[] = {reinterpret_cast<std::byte*>(a.data())};
  host_kernel(*kernel).run({from, to, scratch.data()});
  for (size_t i = 0; i < a.size(); ++i) REQUIRE(a[i] == static_cast<float>(expected[i]));
}

TEST_CASE("scratch that lies where a wider result would end is not taken for the result") {
  // A bf16 result has half the size of its f32 lanes. Scratch directly after it holds lanes of a
  // later tile at the address that the tile would have in an f32 result.
  Trial trial(Mesh(), {"f32[\"a=16384\"]"});
  trial.graph().add_output("y", cast(trial.inputs()[0], DType::kBF16).id());
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::unique_ptr<Kernel> kernel =
      device->prepare(trial.graph(), trial.graph().nodes().front());
  const std::vector<float> x(16384, 1.5f);
  const std::byte* const from[] = {reinterpret_cast<const std::byte*>(x.data())};
  const size_t bytes = x.size() * sizeof(BFloat16);
  std::vector<float> memory((bytes + static_cast<size_t>(kernel->scratch_bytes())) / 4 + 16);
  auto* const aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::byte* const to[] = {aligned};
  host_kernel(*kernel).run({from, to, aligned + bytes});
  const auto* y = reinterpret_cast<const BFloat16*>(aligned);
  for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == BFloat16(1.5f));
}

}  // namespace
}  // namespace tessera
