// SPDX-License-Identifier: Apache-2.0
// Kernels of ops whose result depends on the position of the shard: the results of all devices of a
// mesh, assembled, against the kernel of the unsplit op.
#include <hwy/targets.h>

#include "core/compile/spmd/lower.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/shard_index_map.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/grouped_product.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/order.h"
#include "core/ops/random.h"
#include "core/ops/reshard.h"
#include "core/ops/rotary.h"
#include "core/ops/rounding.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;
using Values = std::map<std::string, std::vector<double>>;

const Mesh kMesh = Mesh::standard({2, 2, 2});

// The type without splits.
std::string unsplit(const std::string& text) {
  Type type = parse_type(text);
  for (Axis& axis : type.axes) axis.split.clear();
  return type.text_sized();
}

// Integers in [0, integers); floats are small integers too, so that sums are exact in any order.
ReferenceInputs whole_inputs(const Graph& graph, int64_t integers) {
  ReferenceInputs inputs = random_inputs(graph, 7, integers);
  for (auto& [name, values] : inputs)
    for (double& value : values) value = std::round(8.0 * value) / 8.0;
  return inputs;
}

// Runs the op on the shards of each device and assembles the results.
std::vector<double> on_mesh(const std::vector<std::string>& types, const Application& apply,
                            const ReferenceInputs& whole, Device& device) {
  Trial trial(kMesh, types);
  const Tensor result = apply(trial.inputs());
  trial.graph().add_output("result", result.id());
  std::vector<std::vector<double>> parts;
  for (int64_t number = 0; number < kMesh.num_devices(); ++number) {
    ReferenceInputs shards;
    for (const GraphInput& input : trial.graph().inputs())
      shards[input.name] =
          shard_of(whole.at(input.name), trial.graph().type(input.value), kMesh, number);
    const Graph local = lower(trial.graph(), kMesh, number);
    parts.push_back(run_on_cpu(local, shards, device).at("result"));
  }
  return assembled(parts, result.type(), kMesh);
}

// The largest difference between the assembled and the whole result, over all vector targets of
// this processor.
double difference(const std::vector<std::string>& types, const Application& apply,
                  const Application& apply_whole, int64_t integers) {
  const auto device = make_cpu_device(2);
  std::vector<std::string> whole_types;
  for (const std::string& type : types) whole_types.push_back(unsplit(type));
  Graph whole;
  {
    Trial trial(Mesh(), whole_types);
    trial.graph().add_output("result", apply_whole(trial.inputs()).id());
    whole = trial.graph();
  }
  const ReferenceInputs inputs = whole_inputs(whole, integers);
  double largest = 0.0;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    const std::vector<double> expected = run_on_cpu(whole, inputs, *device).at("result");
    const std::vector<double> got = on_mesh(types, apply, inputs, *device);
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      largest = std::max(largest, std::abs(got[i] - expected[i]));
  }
  hwy::SetSupportedTargetsForTest(0);
  return largest;
}

// Whether the results have the same bits.
bool shards_match(const std::vector<std::string>& types, const Application& apply,
                  const Application& apply_whole, int64_t integers = 12) {
  return difference(types, apply, apply_whole, integers) == 0.0;
}
bool shards_match(const std::vector<std::string>& types, const Application& apply,
                  int64_t integers = 12) {
  return shards_match(types, apply, apply, integers);
}

Axis axis_of(const std::string& text) { return parse_layout(text).axes[0]; }
Axis unsplit_axis(Axis axis) {
  axis.split.clear();
  return axis;
}

TEST_CASE("the elements of a shard are mapped to the global array, run by run") {
  const Type local = parse_type("f32[\"batch=2 seq=3 embed=4\"]");
  const Attributes place = {{key::kOrigin, std::vector<int64_t>{4, 3, 0}},
                            {key::kExtent, std::vector<int64_t>{8, 6, 4}}};
  const ShardIndexMap elements(local, place);
  std::vector<std::vector<int64_t>> runs;
  const auto note = [&](int64_t offset, int64_t begin, int64_t end) {
    runs.push_back({offset + begin, begin, end});
  };
  elements.for_each_run(2, 20, {}, note);
  REQUIRE(runs == std::vector<std::vector<int64_t>>{{4 * 24 + 14, 2, 12}, {5 * 24 + 12, 12, 20}});
  // Example e of the microbatch is example 1 + 3e of the batch.
  runs.clear();
  elements.for_each_run(13, 14, {1, 3}, note);
  REQUIRE(runs == std::vector<std::vector<int64_t>>{{(1 + 3 * 5) * 24 + 12 + 1, 13, 14}});
  // A whole array is one run; with gaps between examples, each example is one.
  runs.clear();
  const ShardIndexMap whole(local, {});
  whole.for_each_run(0, 24, {2, 1}, note);
  whole.for_each_run(0, 24, {0, 2}, note);
  REQUIRE(runs == std::vector<std::vector<int64_t>>{{24, 0, 24}, {0, 0, 12}, {24, 12, 24}});
  runs.clear();
  ShardIndexMap(parse_type("f32[\"\"]"), {}).for_each_run(0, 1, {5, 2}, note);
  REQUIRE(runs == std::vector<std::vector<int64_t>>{{0, 0, 1}});
}

TEST_CASE("generators make the region of each shard") {
  const std::string split = GENERATE("positions=24", "positions/mdl=24", "positions/data/mdl=24",
                                     "positions/mdl/replica/data=24");
  CAPTURE(split);
  const Axis axis = axis_of(split), whole = unsplit_axis(axis);
  REQUIRE(shards_match(
      {}, [&](const Tensors&) { return iota(axis); }, [&](const Tensors&) { return iota(whole); }));
  const Axis key{"key_seq", 5, {}};
  REQUIRE(shards_match(
      {}, [&](const Tensors&) { return causal_mask(axis, key); },
      [&](const Tensors&) { return causal_mask(whole, key); }));
  REQUIRE(shards_match(
      {}, [&](const Tensors&) { return causal_mask(key, axis); },
      [&](const Tensors&) { return causal_mask(key, whole); }));
  const std::string ids =
      axis.split.size() < 2 ? "i32[\"batch/data=4 seq=3\"]" : "i32[\"batch=4 seq=3\"]";
  for (const DType dtype : {DType::kF32, DType::kI32})
    REQUIRE(shards_match(
        {ids}, [&](const Tensors& in) { return one_hot(in[0], axis, dtype); },
        [&](const Tensors& in) { return one_hot(in[0], whole, dtype); }, 30));
}

TEST_CASE("a mask split along both axes has the rectangle of each device") {
  REQUIRE(shards_match(
      {},
      [](const Tensors&) {
        return causal_mask({"seq", 8, {"data"}}, {"key_seq", 12, {"mdl", "replica"}});
      },
      [](const Tensors&) {
        return causal_mask({"seq", 8, {}}, {"key_seq", 12, {}});
      }));
}

TEST_CASE("random numbers and dropout of a shard have the bits of the whole") {
  const std::string axes =
      GENERATE("batch/data=4 embed/mdl=10", "batch=3 seq=7 embed/mdl/data=36",
               "batch=3 seq=7 embed/data/mdl=36", "batch/replica=2 seq/data=6 embed/mdl=22",
               "batch/mdl/data=8 embed=5", "batch=2 embed/replica=6",
               "batch/replica/data/mdl=8 embed=3", "batch=1 embed/data/mdl/replica=8");
  CAPTURE(axes);
  const Type layout = parse_type("f32[\"" + axes + "\"]");
  const std::vector<Axis> split = layout.axes,
                          whole = parse_type(unsplit(layout.text_sized())).axes;
  const auto uniform = [](const std::vector<Axis>& made) {
    return [made](const Tensors& in) { return random_uniform(made, in[0]); };
  };
  REQUIRE(shards_match({"i32[\"\"]"}, uniform(split), uniform(whole)));
  for (const std::string dtype : {"f32", "bf16"})
    REQUIRE(shards_match({dtype + "[\"" + axes + "\"]", "i32[\"\"]"},
                         [](const Tensors& in) { return dropout(in[0], 0.4, in[1]); }));
  // A microbatch, with and without gaps between its examples.
  for (const int64_t stride : {1, 3})
    REQUIRE(
        shards_match({"f32[\"" + axes + "\"]", "i32[\"\"]", "i32[\"\"]"}, [&](const Tensors& in) {
          const ExampleScope part(in[2], stride);
          return dropout(in[0], 0.4, in[1]);
        }));
}

TEST_CASE("a device gathers its own rows, and zeros for those of others") {
  const std::string table = GENERATE("vocab/mdl=12 embed=3", "vocab/mdl/data=12 embed=3",
                                     "vocab/data/mdl=12 embed/replica=4", "vocab=12 embed/mdl=6",
                                     "vocab/data/mdl/replica=8 embed=1");
  CAPTURE(table);
  // Some ids are outside the whole table.
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string x = dtype + "[\"" + table + "\"]";
    REQUIRE(shards_match(
        {x, "i32[\"seq=29\"]"}, [](const Tensors& in) { return gather(in[0], in[1], "vocab"); },
        15));
    const Axis vocab = parse_type(x).axes[0];
    const std::string updates = dtype + "[\"seq=29 embed=3\"]", ids = "i32[\"seq=29\"]";
    REQUIRE(shards_match(
        {updates, ids}, [&](const Tensors& in) { return scatter_add(in[0], in[1], vocab); },
        [&](const Tensors& in) { return scatter_add(in[0], in[1], unsplit_axis(vocab)); }, 15));
  }
}

TEST_CASE("a device multiplies the rows of its own experts") {
  const std::string layout = GENERATE("batch=4 seq=7 experts/mdl=4 embed=6 mlp=5",
                                      "batch/replica=4 seq=7 experts/mdl/data=4 embed=6 mlp=5",
                                      "batch/data=4 seq=7 experts/mdl=4 embed=6 mlp/replica=10",
                                      "batch=4 seq=7 experts/data=4 embed/mdl=6 mlp=5",
                                      "batch/mdl=4 seq/data=6 experts=4 embed=6 mlp=5");
  CAPTURE(layout);
  const std::vector<Axis> axes = parse_layout(layout).axes;
  const auto type = [&](DType dtype, const std::vector<size_t>& chosen) {
    Type made{dtype, {}, {}};
    for (const size_t axis : chosen) made.axes.push_back(axes[axis]);
    return made.text_sized();
  };
  const std::string ids = type(DType::kI32, {0, 1}), rows = type(DType::kF32, {0, 1, 3});
  const std::string weights = type(DType::kF32, {2, 3, 4});
  const std::string cotangents = type(DType::kF32, {0, 1, 4});
  // Some ids are of no expert.
  const auto product = [](const Tensors& in) {
    return grouped_product(in[0], in[1], in[2], "experts", over("embed"));
  };
  REQUIRE(shards_match({rows, weights, ids}, product, 6));
  const auto outer = [&](const Axis& experts) {
    return [experts](const Tensors& in) {
      return grouped_outer_product(in[0], in[1], in[2], experts);
    };
  };
  REQUIRE(shards_match({rows, cotangents, ids}, outer(axes[2]), outer(unsplit_axis(axes[2])), 6));
}

TEST_CASE("updates split along the other axes of the table are scattered to its shards") {
  REQUIRE(shards_match(
      {"f32[\"batch/data=4 seq=5 embed/replica=6\"]", "i32[\"batch/data=4 seq=5\"]"},
      [](const Tensors& in) {
        return scatter_add(in[0], in[1], {"vocab", 10, {"mdl"}});
      },
      [](const Tensors& in) {
        return scatter_add(in[0], in[1], {"vocab", 10, {}});
      },
      12));
}

TEST_CASE("labels pick from the logits of a shard") {
  REQUIRE(shards_match(
      {"f32[\"batch/data=4 vocab/replica/mdl=12 seq=3\"]", "i32[\"batch/data=4 seq=3\"]"},
      [](const Tensors& in) { return pick(in[0], in[1], "vocab"); }, 15));
}

TEST_CASE("several ids for each row pick from a shard, and add to a shard") {
  REQUIRE(shards_match(
      {"f32[\"batch/data=4 vocab/replica/mdl=12 seq=3\"]", "i32[\"batch/data=4 k=5 seq=3\"]"},
      [](const Tensors& in) { return pick(in[0], in[1], "vocab"); }, 15));
  const std::vector<std::string> types = {"f32[\"batch/data=4 k/replica=6 seq=3\"]",
                                          "i32[\"batch/data=4 k/replica=6 seq=3\"]"};
  REQUIRE(shards_match(
      types,
      [](const Tensors& in) {
        return scatter_along(in[0], in[1], "k", {"vocab", 8, {"mdl"}});
      },
      [](const Tensors& in) {
        return scatter_along(in[0], in[1], "k", {"vocab", 8, {}});
      },
      10));
}

TEST_CASE("orders and running sums of rows that are split among devices") {
  const std::vector<std::string> types = {"f32[\"batch/data=4 seq=9 embed/mdl=6\"]"};
  REQUIRE(shards_match(types, [](const Tensors& in) { return argsort(in[0], "seq"); }));
  REQUIRE(shards_match(types, [](const Tensors& in) {
    return top_k(in[0], "seq", {"k", 4, {}}).indices;
  }));
  const Application sums = [](const Tensors& in) { return cumulative_sum(in[0], "seq"); };
  const auto of_pending = [&](const Tensors& in) {
    Type pending = in[0].type();
    pending.partial = {PartialKind::kSum, {"replica"}};
    return sums({reshard(in[0], pending)});
  };
  REQUIRE(shards_match(types, sums));
  REQUIRE(shards_match(types, of_pending, sums));
}

TEST_CASE("the terms of cross-entropy of all shards add up to the whole") {
  const std::string split =
      GENERATE("batch/data=4 vocab/mdl=300", "batch=4 vocab/mdl/data=300",
               "batch=4 vocab/data/replica/mdl=304", "batch/data=2 vocab/mdl=2");
  const double cap = GENERATE(0.0, 2.0);
  CAPTURE(split, cap);
  const Type logits = parse_layout(split);
  const Type row{DType::kF32, {logits.axes[0]}, {}};
  const auto terms = [&](const Tensors& in) {
    return cross_entropy_shard(in[0], in[1], in[2], "vocab", cap, ShardTotal::kOfLogits);
  };
  Type labels = row;
  labels.dtype = DType::kI32;
  // Sums of some hundred exponentials of numbers up to 4 or so.
  for (const std::string dtype : {"f32", "bf16"})
    REQUIRE(difference({dtype + "[\"" + split + "\"]", labels.text_sized(), row.text_sized()},
                       terms, terms, 310) < 1e-2);
}

TEST_CASE("the gradient of cross-entropy of a shard is its region of the whole") {
  const double cap = GENERATE(0.0, 2.0);
  const auto gradient = [&](const Tensors& in) {
    cross_entropy_shard(in[0], in[1], in[2], "vocab", cap, ShardTotal::kOfLogits);
    Graph& graph = traced_graph();
    const Node node = graph.nodes().back();
    const Tensor terms(&graph, node.outputs[0]);
    const std::vector<Tensor> outputs = {terms}, cotangents = {in[3]};
    return node.op->vjp({node, in, outputs, cotangents})[0];
  };
  for (const std::string dtype : {"f32", "bf16"})
    REQUIRE(difference({dtype + "[\"batch/data=4 vocab/mdl/replica=300\"]", "i32[\"batch/data=4\"]",
                        "f32[\"batch/data=4\"]", "f32[\"terms=3 batch/data=4\"]"},
                       gradient, gradient, 310) == 0.0);
}

TEST_CASE("mask_to_owner keeps a value on one device and writes zeros on the others") {
  for (const std::string dtype : {"f32", "bf16", "i32"})
    REQUIRE(shards_match({dtype + "[\"batch/data=4 embed=5\"]"}, [](const Tensors& in) {
      if (in[0].type().axes[0].split.empty()) return in[0];
      Type pending = in[0].type();
      pending.partial = {PartialKind::kSum, {"replica", "mdl"}};
      return reshard(in[0], pending);
    }));
}

// Shards here have odd and unit sizes.
TEST_CASE("composite ops of a shard have the bits of their region of the whole") {
  const std::string dtype = GENERATE("f32", "bf16");
  const std::string rows =
      GENERATE("batch/data=6 seq/mdl=10 embed=37", "batch/replica/data=4 seq/mdl=2 embed=1");
  CAPTURE(dtype, rows);
  const std::string x = dtype + "[\"" + rows + "\"]";
  const Type hidden = parse_type(x);
  const Type scale{DType::kF32, {hidden.axes[2]}, {}};
  const Type labels{DType::kI32, {hidden.axes[0], hidden.axes[1]}, {}};
  REQUIRE(shards_match({x, scale.text_sized()},
                       [](const Tensors& in) { return rms_norm(in[0], in[1], "embed", 1e-5); }));
  REQUIRE(shards_match({x, scale.text_sized(), scale.text_sized()}, [](const Tensors& in) {
    return layer_norm(in[0], in[1], in[2], "embed", 1e-5);
  }));
  REQUIRE(shards_match({x}, [](const Tensors& in) { return softmax(in[0], "embed"); }));
  REQUIRE(shards_match({x, labels.text_sized()}, [](const Tensors& in) {
    return cross_entropy(in[0], in[1], "embed", {.label_smoothing = 0.1, .z_loss = 0.1}).loss;
  }));
}

TEST_CASE("rotary and attention of split heads and examples are regions of the whole") {
  const std::string dtype = GENERATE("f32", "bf16");
  REQUIRE(shards_match(
      {dtype + "[\"batch/data=2 seq/mdl=6 heads/replica=2 head_dim=6\"]", "i32[\"seq/mdl=6\"]"},
      [](const Tensors& in) { return rotary(in[0], in[1], "head_dim"); }));
  const std::string kv = dtype + "[\"batch/data=2 key_seq=9 kv_heads/mdl=2 head_dim=5\"]";
  REQUIRE(shards_match(
      {dtype + "[\"batch/data=2 seq=9 heads/mdl=6 head_dim=5\"]", kv, kv},
      [](const Tensors& in) { return attention(in[0], in[1], in[2], {.scale = 0.4}); }));
}

TEST_CASE("stochastic rounding of a shard has the bits of its region of the whole") {
  const std::string axes =
      GENERATE("embed/mdl/data=12 mlp=5", "embed=3 mlp/data=2",
               "layers=3 embed/replica=4 mlp/data/mdl=20", "embed=7 mlp/mdl=6");
  CAPTURE(axes);
  const std::string f32 = "f32[\"" + axes + "\"]", bf16 = "bf16[\"" + axes + "\"]";
  const PathScope path("x_layers[3].weight");
  REQUIRE(shards_match({f32}, [](const Tensors& in) {
    return stochastic_round(in[0] * 0.37, constant(4.0, DType::kF32), {.stream = " (row)"});
  }));
  for (const auto& [first, second] : {std::pair(bf16, bf16), std::pair(f32, bf16)})
    REQUIRE(shards_match({f32, first, second, f32}, [&](const Tensors& in) {
      const Tensor number = constant(0.37, DType::kF32);
      const AdamState updated =
          adam_update({in[0], in[1], square(in[2])}, in[3], number, constant(4.0, DType::kF32),
                      number, constant(1.0, DType::kBool), {});
      return widened(updated.first_moment) + widened(updated.second_moment);
    }));
}

TEST_CASE("the rows of a stack whose layers are in pieces are mapped one by one") {
  const Attributes place = {{key::kOrigin, std::vector<int64_t>{0, 0, 2}},
                            {key::kExtent, std::vector<int64_t>{9, 2, 4}},
                            {key::kRows, std::vector<int64_t>{0, 1, 6, 0}}};
  const ShardIndexMap elements(parse_type("f32[\"layers=4 embed=2 mlp=2\"]"), place);
  std::vector<int64_t> numbers;
  elements.for_each_run(0, 16, {}, [&](int64_t offset, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) numbers.push_back(offset + i);
  });
  REQUIRE(numbers == std::vector<int64_t>{2, 3, 6, 7, 10, 11, 14, 15, 50, 51, 54, 55, 2, 3, 6, 7});
}

TEST_CASE("Adam updates each shard as it updates the whole") {
  const std::string axes = GENERATE("embed/mdl/data=12 mlp=5", "embed=3 mlp/data=2",
                                    "embed/replica/data/mdl=8", "embed=7 mlp/mdl=6");
  CAPTURE(axes);
  const std::string state = "f32[\"" + axes + "\"]";
  for (const double apply : {0.0, 1.0})
    REQUIRE(shards_match({state, state, state, state}, [&](const Tensors& in) {
      const AdamState updated =
          adam_update({in[0], in[1], square(in[2])}, in[3], constant(0.1, DType::kF32),
                      constant(4.0, DType::kF32), constant(0.5, DType::kF32),
                      constant(apply, DType::kBool), {.weight_decay = 0.1});
      return updated.parameter + updated.first_moment + updated.second_moment;
    }));
}

}  // namespace
}  // namespace tessera
