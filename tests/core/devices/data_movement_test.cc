// SPDX-License-Identifier: Apache-2.0
// The kernels of data movement, selection and reduction against the reference, at odd sizes and in
// all dtypes.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/devices/cpu/device.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

std::string difference(const std::vector<std::string>& types, const Application& apply,
                       Tolerance tolerance = {.relative = 0.0}, int64_t integers = 4) {
  static const std::unique_ptr<Device> device = make_cpu_device(3);
  Trial trial(Mesh(), types);
  trial.graph().add_output("y", apply(trial.inputs()).id());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 7, integers);
  return difference_from_reference(trial.graph(), inputs, *device, tolerance);
}

const std::vector<std::string> kDTypes = {"f32", "bf16", "i32", "bool"};

TEST_CASE("transposes of two to four axes") {
  for (const std::string& dtype : kDTypes) {
    for (const char* order : {"c b a", "b a c", "a c b", "c a b", "b c a"}) {
      INFO(dtype << " " << order);
      for (const char* axes : {"a=3 b=5 c=7", "a=65 b=33 c=130", "a=1 b=70 c=40"}) {
        REQUIRE(difference({fmt::format("{}[\"{}\"]", dtype, axes)},
                           [&](const auto& in) { return transpose(in[0], order); }) == "");
      }
    }
    REQUIRE(difference({fmt::format("{}[\"a=3 b=9 c=5 d=20\"]", dtype)},
                       [](const auto& in) { return transpose(in[0], "a c b d"); }) == "");
  }
}

TEST_CASE("slices, pads, shifts and concatenations of any axis") {
  for (const std::string& dtype : kDTypes) {
    const std::string type = fmt::format("{}[\"a=5 b=37 c=6\"]", dtype);
    for (const char* axis : {"a", "b", "c"}) {
      INFO(dtype << " " << axis);
      REQUIRE(difference({type}, [&](const auto& in) { return slice(in[0], axis, 1, 4); }) == "");
      REQUIRE(difference({type}, [&](const auto& in) { return pad(in[0], axis, 2, 3); }) == "");
      REQUIRE(difference({type}, [&](const auto& in) { return pad(in[0], axis, 0, 1); }) == "");
      REQUIRE(difference({type}, [&](const auto& in) { return shift_right(in[0], axis, 1); }) ==
              "");
      REQUIRE(difference({type, type}, [&](const auto& in) {
                return concat({in[0], slice(in[1], axis, 0, 2), in[0]}, axis);
              }) == "");
    }
  }
}

TEST_CASE("gather, scatter_add and pick, with ids outside the axis") {
  for (const char* dtype : {"f32", "bf16"}) {
    INFO(dtype);
    const std::string table = fmt::format("{}[\"v=9 e=21\"]", dtype);
    REQUIRE(difference(
                {table, "i32[\"b=7 s=13\"]"},
                [](const auto& in) { return gather(in[0], in[1], "v"); }, {.relative = 0.0},
                9) == "");
    REQUIRE(difference(
                {fmt::format("{}[\"b=17 s=13 e=70\"]", dtype), "i32[\"b=17 s=13\"]"},
                [](const auto& in) {
                  return scatter_add(in[0], in[1], {"v", 9});
                },
                {.relative = 1e-6}, 11) == "");
    REQUIRE(difference({fmt::format("{}[\"b=3 v=4 s=13\"]", dtype), "i32[\"b=3 s=13\"]"},
                       [](const auto& in) { return pick(in[0], in[1], "v"); }) == "");
    REQUIRE(difference({fmt::format("{}[\"b=3 s=13 v=4\"]", dtype), "i32[\"b=3 s=13\"]"},
                       [](const auto& in) { return pick(in[0], in[1], "v"); }) == "");
  }
}

TEST_CASE("sums and maxima over any axes") {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* axes : {"a=3 b=5 c=7 d=2", "a=2 b=300 c=4 d=70", "a=1 b=1 c=20000 d=3",
                             "a=200 b=1 c=1 d=130", "a=1 b=1 c=1 d=1"}) {
      for (const char* over :
           {"a", "b", "c", "d", "a b", "b c", "c d", "a c", "b d", "a b c", "b c d", "a b c d"}) {
        INFO(dtype << " " << axes << " over " << over);
        const std::string type = fmt::format("{}[\"{}\"]", dtype, axes);
        REQUIRE(difference({type}, [&](const auto& in) { return reduce_sum(in[0], over); },
                           {.relative = 1e-5, .absolute = 1e-4}) == "");
        REQUIRE(difference({type}, [&](const auto& in) { return reduce_max(in[0], over); }) == "");
      }
    }
  }
}

TEST_CASE("sums and scatters have the same bits for any number of threads") {
  for (const char* over : {"a", "b", "a b", "c", "a b c"}) {
    Trial trial(Mesh(), {"f32[\"a=61 b=40 c=129\"]"});
    trial.graph().add_output("y", reduce_sum(trial.inputs()[0], over).id());
    const ReferenceInputs inputs = random_inputs(trial.graph(), 3);
    const auto one = run_on_cpu(trial.graph(), inputs, *make_cpu_device(1));
    REQUIRE(one == run_on_cpu(trial.graph(), inputs, *make_cpu_device(2)));
    REQUIRE(one == run_on_cpu(trial.graph(), inputs, *make_cpu_device(5)));
  }
  Trial trial(Mesh(), {"f32[\"n=999 e=40\"]", "i32[\"n=999\"]"});
  trial.graph().add_output("y", scatter_add(trial.inputs()[0], trial.inputs()[1], {"v", 7}).id());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 3, 7);
  const auto one = run_on_cpu(trial.graph(), inputs, *make_cpu_device(1));
  REQUIRE(one == run_on_cpu(trial.graph(), inputs, *make_cpu_device(4)));
}

}  // namespace
}  // namespace tessera
