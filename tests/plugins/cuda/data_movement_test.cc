// SPDX-License-Identifier: Apache-2.0
// Tests kernels that move data on the virtual GPU: bit for bit against the reference interpreter,
// at shapes and addresses that take each width of access.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/kernels/strided.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

using Tensors = std::vector<Tensor>;

const std::vector<std::string> kDTypes = {"f32", "bf16", "i32", "bool"};

// Returns the first difference from the reference, with values at aligned and at odd addresses.
std::string moved_difference(const TestDevices& devices, const std::vector<std::string>& types,
                             const Application& apply, int64_t integers = 4,
                             Tolerance tolerance = {0.0, 0.0}) {
  Trial trial(Mesh(), types);
  trial.graph().add_output("y", apply(trial.inputs()).id());
  const Graph& graph = trial.graph();
  const ReferenceInputs inputs = random_inputs(graph, 7, integers);
  const GraphResults expected = rounded_reference(graph, inputs);
  for (const int64_t shift : {0, 1, 2}) {
    const std::string found = element_difference(
        run_launched(*devices.gpu, graph, inputs, {.shift = shift}), expected, tolerance);
    if (!found.empty()) return fmt::format("shifted by {}: {}", shift, found);
  }
  return "";
}

TEST_CASE("op cases of data movement on the GPU agree with the reference") {
  const TestDevices devices;
  for (const OpCase& row : all_op_cases()) {
    const std::string family = family_of(row);
    if (family != "layout" && family != "gather" && row.op != &kCacheUpdateOp) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
    }
  }
}

TEST_CASE("transposes on the GPU: runs, tiles of elements and tiles of 16-byte accesses") {
  const TestDevices devices;
  for (const std::string& dtype : kDTypes) {
    for (const char* order : {"c b a", "b a c", "a c b", "c a b", "b c a"}) {
      for (const char* axes :
           {"a=3 b=5 c=7", "a=35 b=33 c=40", "a=1 b=70 c=40", "a=2 b=72 c=136", "a=8 b=1 c=16"}) {
        INFO(dtype << " " << axes << " to " << order);
        REQUIRE(moved_difference(devices, {fmt::format("{}[\"{}\"]", dtype, axes)},
                                 [&](const Tensors& in) { return transpose(in[0], order); }) == "");
      }
    }
    for (const char* order : {"a c b d", "d c b a", "d a b c", "c d a b"}) {
      INFO(dtype << " to " << order);
      REQUIRE(moved_difference(devices, {fmt::format("{}[\"a=3 b=9 c=5 d=24\"]", dtype)},
                               [&](const Tensors& in) { return transpose(in[0], order); }) == "");
    }
  }
}

TEST_CASE("a copy of six axes that cannot be merged") {
  const TestDevices devices;
  REQUIRE(moved_difference(devices, {"bf16[\"a=2 b=3 c=2 d=3 e=2 f=8\"]"}, [](const Tensors& in) {
            return transpose(in[0], "e d c b a f");
          }) == "");
  REQUIRE(moved_difference(devices, {"f32[\"a=2 b=3 c=2 d=3 e=2 f=9\"]"}, [](const Tensors& in) {
            return transpose(in[0], "f e d c b a");
          }) == "");
}

TEST_CASE("slices, pads, shifts and concatenations of any axis on the GPU") {
  const TestDevices devices;
  for (const std::string& dtype : kDTypes) {
    for (const char* axes : {"a=5 b=37 c=6", "a=6 b=8 c=32"}) {
      const std::string type = fmt::format("{}[\"{}\"]", dtype, axes);
      for (const char* axis : {"a", "b", "c"}) {
        INFO(type << " " << axis);
        const auto check = [&](const Application& apply) {
          REQUIRE(moved_difference(devices, {type, type}, apply) == "");
        };
        check([&](const Tensors& in) { return slice(in[0], axis, 1, 4); });
        check([&](const Tensors& in) { return pad(in[0], axis, 2, 3); });
        check([&](const Tensors& in) { return pad(in[0], axis, 0, 1); });
        check([&](const Tensors& in) { return shift_right(in[0], axis, 1); });
        check([&](const Tensors& in) { return concat({in[0], in[1], in[0]}, axis); });
      }
    }
  }
  // More parts than one launch supports.
  REQUIRE(
      moved_difference(devices, {"f32[\"a=3 b=5\"]", "f32[\"a=3 b=2\"]"}, [](const Tensors& in) {
        Tensors parts;
        for (int i = 0; i < 35; ++i) parts.push_back(in[static_cast<size_t>(i % 3 == 0)]);
        return concat(parts, "b");
      }) == "");
}

TEST_CASE("gather and pick on the GPU, with ids outside the axis") {
  const TestDevices devices;
  for (const std::string& dtype : kDTypes) {
    for (const int columns : {1, 3, 8, 21, 136}) {
      INFO(dtype << " " << columns);
      REQUIRE(moved_difference(
                  devices, {fmt::format("{}[\"v=9 e={}\"]", dtype, columns), "i32[\"b=7 s=13\"]"},
                  [](const Tensors& in) { return gather(in[0], in[1], "v"); }, 11) == "");
    }
    for (const char* axes : {"b=3 v=4 s=13", "b=3 s=13 v=4", "v=4 b=3 s=13"}) {
      INFO(dtype << " " << axes);
      REQUIRE(moved_difference(
                  devices, {fmt::format("{}[\"{}\"]", dtype, axes), "i32[\"b=3 s=13\"]"},
                  [](const Tensors& in) { return pick(in[0], in[1], "v"); }, 6) == "");
    }
    for (const char* ids : {"b=3 k=5 s=13", "b=3 k=1 s=13"}) {
      INFO(dtype << " " << ids);
      REQUIRE(moved_difference(
                  devices,
                  {fmt::format("{}[\"b=3 v=4 s=13\"]", dtype), fmt::format("i32[\"{}\"]", ids)},
                  [](const Tensors& in) { return pick(in[0], in[1], "v"); }, 6) == "");
    }
  }
}

TEST_CASE("scatter_along on the GPU adds in the order of the ids") {
  const TestDevices devices;
  for (const char* axes : {"b=7 k=5 s=3", "k=300", "b=40 k=2"}) {
    INFO(axes);
    for (const char* dtype : {"f32", "bf16"}) {
      REQUIRE(moved_difference(
                  devices,
                  {fmt::format("{}[\"{}\"]", dtype, axes), fmt::format("i32[\"{}\"]", axes)},
                  [](const Tensors& in) {
                    return scatter_along(in[0], in[1], "k", {"v", 9, {}});
                  },
                  11, {.relative = 1e-2, .absolute = dtype[0] == 'f' ? 1e-4 : 0.3}) == "");
    }
  }
  // 1e8 + 1 = 1e8 in f32: only this order gives 2.
  Trial trial(Mesh(), {"f32[\"k=5\"]", "i32[\"k=5\"]"});
  trial.graph().add_output(
      "y", scatter_along(trial.inputs()[0], trial.inputs()[1], "k", {"v", 3, {}}).id());
  const ReferenceInputs inputs = {{"x", {1e8, 1, -1e8, 2, 7}}, {"y", {1, 1, 1, 1, 3}}};
  REQUIRE(run_launched(*devices.gpu, trial.graph(), inputs).at("y") ==
          std::vector<double>{0, 2, 0});
}

// Covers rows whose ids fill no chunk, several chunks, or end where a chunk ends, and digits of
// one, two and three passes.
TEST_CASE("scatter_add on the GPU sums each row's updates") {
  const TestDevices devices;
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& [updates, columns, rows, ids] :
         std::vector<std::array<int, 4>>{{5, 3, 4, 6},
                                         {221, 70, 9, 11},
                                         {64, 8, 3, 1},
                                         {128, 24, 3, 2},
                                         {1000, 16, 2, 2},
                                         {130, 264, 300, 310},
                                         {700, 5, 70000, 70000},
                                         {5000, 1, 40, 50},
                                         {90, 4, 1, 1}}) {
      INFO(dtype << " " << updates << " " << columns << " " << rows << " " << ids);
      const std::vector<std::string> types = {
          fmt::format("{}[\"n={} e={}\"]", dtype, updates, columns),
          fmt::format("i32[\"n={}\"]", updates)};
      const int64_t size = rows;
      REQUIRE(moved_difference(devices, types,
                               [&](const Tensors& in) {
                                 return scatter_add(in[0], in[1], {"v", size, {}});
                               },
                               ids,
                               {.relative = 1e-2, .absolute = dtype[0] == 'f' ? 1e-4 : 0.3}) == "");
    }
  }
}

TEST_CASE("scatter_add on the GPU adds a row's updates in their order") {
  const TestDevices devices;
  // 1e8 + 1 = 1e8 in f32: only this order of the terms of a chunk gives 2.
  Trial trial(Mesh(), {"f32[\"n=6 e=1\"]", "i32[\"n=6\"]"});
  trial.graph().add_output("y",
                           scatter_add(trial.inputs()[0], trial.inputs()[1], {"v", 2, {}}).id());
  const ReferenceInputs inputs = {{"x", {1e8, 5, 1, -1e8, 2, 7}}, {"y", {1, 0, 1, 1, 1, 3}}};
  const GraphResults got = run_launched(*devices.gpu, trial.graph(), inputs);
  REQUIRE(got.at("y") == std::vector<double>{5, 2});
}

TEST_CASE("shards of gather, pick, scatter_along and scatter_add on the GPU have the CPU's bits") {
  const TestDevices devices;
  const Mesh mesh = Mesh::standard({2, 2, 2});
  const auto difference = [&](const std::vector<std::string>& types, const Application& apply) {
    Trial trial(mesh, types);
    trial.graph().add_output("result", apply(trial.inputs()).id());
    return difference_on_shards(trial.graph(), mesh, *devices.gpu, *devices.cpu);
  };
  REQUIRE(difference({"bf16[\"v/mdl=8 e=24\"]", "i32[\"b/data=4 s=5\"]"},
                     [](const Tensors& in) { return gather(in[0], in[1], "v"); }) == "");
  REQUIRE(difference({"f32[\"b/data=4 v/mdl=8\"]", "i32[\"b/data=4\"]"},
                     [](const Tensors& in) { return pick(in[0], in[1], "v"); }) == "");
  REQUIRE(difference({"f32[\"b/data=4 v/mdl=8 s=3\"]", "i32[\"b/data=4 k=5 s=3\"]"},
                     [](const Tensors& in) { return pick(in[0], in[1], "v"); }) == "");
  REQUIRE(
      difference({"f32[\"b/data=4 k=5 s=3\"]", "i32[\"b/data=4 k=5 s=3\"]"}, [](const Tensors& in) {
        return scatter_along(in[0], in[1], "k", {"v", 8, {"mdl"}});
      }) == "");
  REQUIRE(difference({"f32[\"b=10 e=3\"]", "i32[\"b=10\"]"}, [](const Tensors& in) {
            return scatter_add(in[0], in[1], {"v", 8, {"mdl"}});
          }) == "");
  for (const char* dtype : {"f32", "bf16", "i32"}) {
    REQUIRE(difference({fmt::format("{}[\"batch/data=4 embed=5\"]", dtype)}, [](const Tensors& in) {
              Type pending = in[0].type();
              pending.partial = {PartialKind::kSum, {"replica", "mdl"}};
              return reshard(in[0], pending);
            }) == "");
  }
}

// Returns how a node's result differs from the CPU's, at aligned and odd addresses and in place.
std::string difference_from_cpu(const TestDevices& devices, const Graph& graph,
                                const ReferenceInputs& inputs, bool in_place) {
  const GraphResults expected = run_launched(*devices.cpu, graph, inputs);
  for (const OperandPlace placement :
       {OperandPlace{}, OperandPlace{.shift = 1}, OperandPlace{.in_place = true}}) {
    if (placement.in_place && !in_place) continue;
    const std::string found =
        element_difference(run_launched(*devices.gpu, graph, inputs, placement), expected);
    if (!found.empty()) return found;
  }
  return "";
}

TEST_CASE("copy and mask_to_owner on the GPU") {
  const TestDevices devices;
  for (const std::string& dtype : kDTypes) {
    for (const int size : {1, 7, 4096, 4097}) {
      const std::string type = fmt::format("{}[\"a={}\"]", dtype, size);
      INFO(type);
      for (const OpDef* op :
           {static_cast<const OpDef*>(&kCopyOp), static_cast<const OpDef*>(&kMaskToOwnerOp)}) {
        for (const bool keep : {false, true}) {
          Trial trial(Mesh(), {type});
          Attributes attributes;
          if (op == &kMaskToOwnerOp) attributes.set(key::kIsOwner, keep);
          const Tensor y = trace_op(*op, {trial.inputs()[0]}, attributes, SourceSite::current());
          trial.graph().add_output("y", y.id());
          REQUIRE(difference_from_cpu(devices, trial.graph(), random_inputs(trial.graph(), 7),
                                      op == &kMaskToOwnerOp) == "");
        }
      }
    }
  }
}

TEST_CASE("cache_update on the GPU, with positions outside the cache") {
  const TestDevices devices;
  for (const char* dtype : {"f32", "bf16"}) {
    for (const int width : {3, 16}) {
      INFO(dtype << " " << width);
      Trial trial(Mesh(),
                  {fmt::format("{}[\"batch=3 kv_heads=2 key_seq=5 head_dim={}\"]", dtype, width),
                   fmt::format("{}[\"batch=3 seq=2 kv_heads=2 head_dim={}\"]", dtype, width),
                   "i32[\"batch=3\"]"});
      const Tensors& in = trial.inputs();
      trial.graph().add_output("y", cache_update(in[0], in[1], in[2]).id());
      ReferenceInputs inputs = random_inputs(trial.graph(), 3);
      for (const std::vector<double>& starts : std::vector<std::vector<double>>{
               {0, 3, 4}, {-1, -2, 5}, {2147483647, -2147483648.0, 1}}) {
        inputs[trial.graph().inputs()[2].name] = starts;
        REQUIRE(difference_from_cpu(devices, trial.graph(), inputs, true) == "");
      }
    }
  }
}

TEST_CASE("unsupported data movement on the GPU is an error") {
  const TestDevices devices;
  const auto prepare = [&](const std::vector<std::string>& types, const Application& apply) {
    return error_of([&] {
      Trial trial(Mesh(), types);
      apply(trial.inputs());
      devices.gpu->prepare(trial.graph(), trial.graph().nodes().back());
    });
  };
  std::string axes, order;
  for (char name = 'a'; name <= 'q'; ++name) {
    axes += fmt::format("{}=2 ", name);
    order = fmt::format("{} {}", name, order);
  }
  REQUIRE_THAT(prepare({fmt::format("f32[\"{}\"]", axes)},
                       [&](const Tensors& in) { return transpose(in[0], order); }),
               Catch::Contains("transpose: 17 axes that cannot be merged, expected at most 16"));
  REQUIRE_THAT(prepare({"bf16[\"n=2147483648 e=1\"]", "i32[\"n=2147483648\"]"},
                       [](const Tensors& in) {
                         return scatter_add(in[0], in[1], {"v", 8, {}});
                       }),
               Catch::Contains("scatter_add: 2147483648 ids on one device, expected at most"));
}

// Tests the formula of divide() in plugins/cuda/kernels/strided.cuh.
TEST_CASE("Divider divides by multiplication") {
  for (int bits = 0; bits < 62; ++bits) {
    for (const int64_t more : {-1, 0, 1, 12345}) {
      const int64_t divisor = (int64_t{1} << bits) + more;
      if (divisor < 1) continue;
      const Divider by = make_divider(static_cast<uint64_t>(divisor));
      for (const uint64_t quotient : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{77777}}) {
        for (const uint64_t rest : {uint64_t{0}, by.divisor / 2, by.divisor - 1}) {
          __extension__ using Wide = unsigned __int128;
          if ((Wide{by.divisor} * quotient + rest) >> 63 != 0) continue;
          const uint64_t n = by.divisor * quotient + rest;
          const auto high = static_cast<uint64_t>(Wide{n} * by.wide_multiplier >> 64);
          REQUIRE((high + n) >> by.wide_shift == quotient);
          if (n >> 31 != 0) continue;
          REQUIRE(((n * by.multiplier >> 32) + n) >> by.shift == quotient);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cuda
