// SPDX-License-Identifier: Apache-2.0
// argsort, sort, top_k and cumulative_sum of values written by hand, by the reference interpreter
// and by the CPU: NaN, zeros of both signs and equal elements among them.
#include "core/ops/order.h"

#include <cmath>
#include <limits>

#include "core/check/run_graph.h"
#include "core/devices/cpu/device.h"
#include "core/graph/trace.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The result on x, the same by the interpreter and by the CPU; -1000 stands for NaN, which equals
// nothing.
Values result_of(const std::string& type, const Values& x, const Application& apply) {
  static const std::unique_ptr<Device> device = make_cpu_device(2);
  Trial trial(Mesh::standard({1, 1, 1}), {type});
  output("y", apply(trial.inputs()));
  CompileOptions options;
  options.mesh = trial.mesh();
  const auto without_nan = [](Values values) {
    for (double& value : values)
      if (std::isnan(value)) value = -1000.0;
    return values;
  };
  const ReferenceInputs inputs = {{"x", x}};
  const Type& result = trial.graph().type(trial.graph().outputs().front().value);
  const Values expected =
      without_nan(rounded(result, evaluate(trial.graph(), inputs).at("y").values));
  REQUIRE(without_nan(run_graph(trial.graph(), inputs, *device, options).at("y")) == expected);
  return expected;
}

const Values kMixed = {2, kNaN, -0.0, -kInfinity, 0.0, 2, kInfinity, -1.5, -kNaN};

TEST_CASE("argsort: NaN is the greatest, zeros are equal, equal elements keep their order") {
  for (const char* type : {"f32[\"n=9\"]", "bf16[\"n=9\"]"}) {
    INFO(type);
    REQUIRE(result_of(type, kMixed, [](const auto& in) { return argsort(in[0], "n"); }) ==
            Values{3, 7, 2, 4, 0, 5, 6, 1, 8});
    REQUIRE(result_of(type, kMixed, [](const auto& in) {
              return argsort(in[0], "n", SortOrder::kDescending);
            }) == Values{1, 8, 6, 0, 5, 2, 4, 7, 3});
    REQUIRE(result_of(type, kMixed, [](const auto& in) { return sort(in[0], "n"); }) ==
            Values{-kInfinity, -1.5, 0, 0, 2, 2, kInfinity, -1000, -1000});
    REQUIRE(result_of(type, kMixed, [](const auto& in) {
              return top_k(in[0], "n", {"k", 5, {}}).indices;
            }) == Values{1, 8, 6, 0, 5});
  }
}

TEST_CASE("argsort of integers, down to the smallest") {
  const Values x = {3, -2147483648.0, 2147483647, -1, 3, 0};
  REQUIRE(result_of("i32[\"n=6\"]", x, [](const auto& in) { return argsort(in[0], "n"); }) ==
          Values{1, 3, 5, 0, 4, 2});
  REQUIRE(result_of("i32[\"n=6\"]", x, [](const auto& in) {
            return sort(in[0], "n", SortOrder::kDescending);
          }) == Values{2147483647, 3, 3, 0, -1, -2147483648.0});
}

TEST_CASE("argsort and top_k follow their axis") {
  const Values x = {1, 8, 5, 2, 9, 5};  // Columns 1 2, 8 9, 5 5.
  const char* const type = "f32[\"a=2 b=3\"]";
  REQUIRE(result_of(type, x, [](const auto& in) { return argsort(in[0], "b"); }) ==
          Values{0, 2, 1, 0, 2, 1});
  REQUIRE(result_of(type, x, [](const auto& in) {
            return argsort(in[0], "a", SortOrder::kDescending);
          }) == Values{1, 1, 0, 0, 0, 1});
  REQUIRE(result_of(type, x, [](const auto& in) {
            return top_k(in[0], "a", {"k", 1, {}}).values;
          }) == Values{2, 9, 5});
  REQUIRE(result_of(type, x, [](const auto& in) {
            return top_k(in[0], "b", {"b", 2, {}}).indices;
          }) == Values{1, 2, 1, 2});
}

TEST_CASE("cumulative_sum: inclusive, exclusive and reversed, along either axis") {
  const Values x = {1, 2, 3, 4, 5, 6};
  for (const char* type : {"f32[\"a=2 b=3\"]", "bf16[\"a=2 b=3\"]", "i32[\"a=2 b=3\"]"}) {
    INFO(type);
    const auto sums = [&](const char* axis, CumulativeSumOptions options) {
      return result_of(type, x,
                       [&](const auto& in) { return cumulative_sum(in[0], axis, options); });
    };
    REQUIRE(sums("b", {}) == Values{1, 3, 6, 4, 9, 15});
    REQUIRE(sums("b", {.exclusive = true}) == Values{0, 1, 3, 0, 4, 9});
    REQUIRE(sums("b", {.reverse = true}) == Values{6, 5, 3, 15, 11, 6});
    REQUIRE(sums("b", {.exclusive = true, .reverse = true}) == Values{5, 3, 0, 11, 6, 0});
    REQUIRE(sums("a", {}) == Values{1, 2, 3, 5, 7, 9});
    REQUIRE(sums("a", {.exclusive = true}) == Values{0, 0, 0, 1, 2, 3});
  }
}

TEST_CASE("cumulative_sum adds bf16 in f32, and integers exactly") {
  // 256 + 1 is 256 in bf16: sums that were rounded at each step would stay there.
  REQUIRE(result_of("bf16[\"n=5\"]", {256, 1, 1, 1, 1}, [](const auto& in) {
            return cumulative_sum(in[0], "n");
          }) == Values{256, 256, 258, 260, 260});
  // 2^24 + 1 has no f32.
  REQUIRE(result_of("i32[\"n=3\"]", {16777216, 1, 1}, [](const auto& in) {
            return cumulative_sum(in[0], "n");
          }) == Values{16777216, 16777217, 16777218});
}

TEST_CASE("unbind: the slices of the first, an inner and the last axis") {
  const Values x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto slice_of = [&](const char* axis, size_t i) {
    return result_of("f32[\"a=2 b=3 c=2\"]", x,
                     [&](const auto& in) { return unbind(in[0], axis).at(i); });
  };
  REQUIRE(slice_of("a", 1) == Values{7, 8, 9, 10, 11, 12});
  REQUIRE(slice_of("b", 1) == Values{3, 4, 9, 10});
  REQUIRE(slice_of("c", 0) == Values{1, 3, 5, 7, 9, 11});
}

TEST_CASE("scatter_along adds in the order of the ids, and drops ids outside the axis") {
  Trial trial(Mesh(), {"f32[\"k=5\"]", "i32[\"k=5\"]"});
  output("y", scatter_along(trial.inputs()[0], trial.inputs()[1], "k", {"n", 3, {}}));
  // 1e8 + 1 = 1e8 in f32: only this order gives 2.
  const ReferenceInputs inputs = {{"x", {1e8, 1, -1e8, 2, 7}}, {"y", {1, 1, 1, 1, 3}}};
  REQUIRE(run_on_cpu(trial.graph(), inputs, *make_cpu_device(1)).at("y") == Values{0, 2, 0});
}

}  // namespace
}  // namespace tessera
