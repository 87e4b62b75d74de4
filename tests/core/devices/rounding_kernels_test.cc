// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding on the CPU: the bits of the formula on each vector target, its mean, and the
// moments of Adam that are stored with it.
#include <cmath>
#include <limits>

#include <fmt/core.h>
#include <hwy/targets.h>

#include "core/devices/cpu/device.h"
#include "core/ops/elementwise.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/reshard.h"
#include "core/ops/rounding.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// The elements x rounded after `count` updates, as the path's weight of this type.
std::vector<double> rounded(const std::string& type, const std::vector<double>& x, double count,
                            const std::string& weight = "weight", int64_t seed = 1) {
  Trial trial({}, {type, "f32[\"\"]"});
  const SeedScope scope(seed);
  const PathScope path(weight);
  trial.graph().add_output("y", stochastic_round(trial.inputs()[0], trial.inputs()[1], {}).id());
  const auto device = make_cpu_device(2);
  return run_on_cpu(trial.graph(), {{"x", x}, {"y", {count}}}, *device).at("y");
}

std::string vector_type(size_t elements) { return fmt::format("f32[\"embed={}\"]", elements); }

TEST_CASE("stochastic rounding has the bits of its formula on every vector target") {
  const auto device = make_cpu_device(2);
  for (const int size : {1, 7, 1024, 20001}) {
    Trial trial({}, {vector_type(static_cast<size_t>(size)), "f32[\"\"]"});
    const std::vector<Tensor>& in = trial.inputs();
    const PathScope path("x_layers[3].weight");
    trial.graph().add_output("low", stochastic_round(in[0], in[1], {}).id());
    trial.graph().add_output("high",
                             stochastic_round(in[0], in[1], {.half = NoiseHalf::kHigh}).id());
    ReferenceInputs inputs = random_inputs(trial.graph(), 5);
    inputs.at("y") = {12345.0};
    for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
      hwy::SetSupportedTargetsForTest(targets & -targets);
      const auto got = run_on_cpu(trial.graph(), inputs, *device);
      for (const char* name : {"low", "high"})
        REQUIRE(got.at(name) == evaluate(trial.graph(), inputs).at(name).values);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST_CASE("stochastic rounding keeps the mean, and what bf16 can represent") {
  // A quarter of the way from 1 to the next number of bf16, 1 + 2^-7.
  const std::vector<double> x(40000, 1.0 + 0x1p-9);
  double mean = 0.0;
  for (const double y : rounded(vector_type(x.size()), x, 3.0)) {
    REQUIRE((y == 1.0 || y == 1.0 + 0x1p-7));
    mean += y / static_cast<double>(x.size());
  }
  // The standard deviation of the mean is 2^-7·√(3/16/40000).
  REQUIRE(std::abs(mean - x[0]) < 5.0 * 0x1p-7 * std::sqrt(3.0 / 16.0 / 40000.0));
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> exact = {0.0, 1.0, -0.375, 0x1p-133, infinity, -infinity};
  REQUIRE(rounded(vector_type(exact.size()), exact, 3.0) == exact);
  REQUIRE(std::isnan(rounded(vector_type(1), {std::nan("")}, 3.0)[0]));
}

TEST_CASE("the noise of rounding changes with the seed, the weight and the number of updates") {
  const std::vector<double> x(64, 1.0 + 0x1p-8);
  const std::string type = vector_type(x.size());
  const std::vector<double> once = rounded(type, x, 3.0);
  REQUIRE(rounded(type, x, 3.0) == once);
  REQUIRE(rounded(type, x, 4.0) != once);
  REQUIRE(rounded(type, x, 3.0, "other") != once);
  REQUIRE(rounded(type, x, 3.0, "weight", 2) != once);
}

TEST_CASE("a layer of a stack is rounded as the same layer on its own") {
  const std::vector<double> x(6, 1.0 + 0x1p-8);
  std::vector<double> layers;
  for (const int layer : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const auto one = rounded("f32[\"embed=6\"]", x, 3.0, fmt::format("x_layers[{}].w", layer));
    layers.insert(layers.end(), one.begin(), one.end());
  }
  const std::vector<double> stack(48, x[0]);
  REQUIRE(rounded("f32[\"layers=8 embed=6\"]", stack, 3.0, "x_layers[].w") == layers);
}

TEST_CASE("Adam with moments in bf16 agrees with its decomposition") {
  const int size = GENERATE(1, 100, 20000);
  const std::string first = GENERATE("f32", "bf16"), second = GENERATE("f32", "bf16");
  const Rounding rounding = GENERATE(Rounding::kNearest, Rounding::kStochastic);
  const double apply = GENERATE(0.0, 1.0);
  CAPTURE(size, first, second, rounding, apply);
  const auto type = [&](const std::string& dtype) {
    return fmt::format("{}[\"embed={}\"]", dtype, size);
  };
  Trial trial({}, {type("f32"), type(first), type(second), type("f32"), "f32[\"\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  const Tensor steps = input("count", InputKind::kScalar, make_type(DType::kF32, {}));
  const Tensor flag = input("apply", InputKind::kScalar, make_type(DType::kBool, {}));
  adam_update({in[0], in[1], in[2]}, in[3], in[4], steps, in[4], flag,
              {.beta2 = 0.95, .weight_decay = 0.1, .rounding = rounding});
  // Second moments are never negative. The mean of 0.5 and a square is not representable in bf16.
  const KernelCheck check{.given = {{"z", std::vector<double>(static_cast<size_t>(size), 0.5)},
                                    {"v", {1e-2}},
                                    {"count", {7.0}},
                                    {"apply", {apply}}}};
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("Adam stores the bits of its f32 moments rounded by stochastic_round") {
  const std::string narrow = "bf16[\"row=9 embed=123\"]", wide = "f32[\"row=9 embed=123\"]";
  Trial trial({}, {wide, narrow, narrow, wide, "f32[\"\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  const PathScope path("weight");
  const Tensor yes = less_equal(in[4], in[4]);
  const auto update = [&](const Tensor& first, const Tensor& second) {
    return adam_update({in[0], first, second}, in[3], in[4], in[4], in[4], yes, {});
  };
  const AdamState stored = update(in[1], in[2]), exact = update(widened(in[1]), widened(in[2]));
  const auto add = [&](const std::string& name, const Tensor& x) {
    trial.graph().add_output(name, x.id());
  };
  add("parameter", stored.parameter), add("expected parameter", exact.parameter);
  add("first", stored.first_moment), add("second", stored.second_moment);
  add("expected first", stochastic_round(exact.first_moment, in[4], {}));
  add("expected second", stochastic_round(exact.second_moment, in[4], {.half = NoiseHalf::kHigh}));
  ReferenceInputs inputs = random_inputs(trial.graph(), 5);
  inputs.at("v") = {2.0};
  for (double& each : inputs.at("z")) each = std::abs(each);
  const auto device = make_cpu_device(2);
  auto got = run_on_cpu(trial.graph(), inputs, *device);
  for (const std::string name : {"parameter", "first", "second"})
    REQUIRE(got.at(name) == got.at("expected " + name));
}

}  // namespace
}  // namespace tessera
