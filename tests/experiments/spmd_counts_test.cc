// SPDX-License-Identifier: Apache-2.0
// The communication of a training step against the textbook: the collectives of each strategy and
// their bytes, from the sizes of weights and activations. (spmd_same_numbers_test.cc tests that
// devices send what the plan says.)
#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "core/compile/cost.h"
#include "core/graph/op.h"
#include "layers/parameter.h"
#include "tests/support/catch.h"
#include "tests/support/spmd_case.h"

namespace tessera {
namespace {

using enum TrialModel;

struct Traffic {
  int64_t count = 0, bytes = 0;  // Per step; bytes sent by one device.
  bool operator==(const Traffic&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Traffic& traffic) {
  return out << traffic.count << " of " << traffic.bytes << " bytes";
}

// By "all_gather data". Scalars (loss, metrics, norm) are counted separately, by phase.
using Table = std::map<std::string, Traffic>;

void add(Table* table, const std::string& what, int64_t bytes, int64_t count = 1) {
  if (count == 0) return;
  Traffic& traffic = (*table)[what];
  traffic.count += count;
  traffic.bytes += count * bytes;
}

constexpr int64_t kScalarBytes = 8;  // An all-reduce of an f32 sends less.

Table table_of(const std::vector<CollectiveUse>& uses) {
  Table table;
  for (const CollectiveUse& use : uses)
    if (use.bytes >= kScalarBytes)
      add(&table, fmt::format("{} {}", use.op, fmt::join(use.mesh_axes, " ")), use.bytes,
          use.count);
  return table;
}

// The table as lines, for a readable failure.
std::string text(const Table& table) {
  std::string lines;
  for (const auto& [what, traffic] : table)
    lines += fmt::format("{}: {} of {} bytes together\n", what, traffic.count, traffic.bytes);
  return lines;
}

int64_t scalars(const std::vector<CollectiveUse>& uses, Phase phase) {
  int64_t count = 0;
  for (const CollectiveUse& use : uses)
    if (use.bytes < kScalarBytes && use.phase == phase) count += use.count;
  return count;
}

// Returns the bytes that a device sends in an all-gather or reduce-scatter of `bytes` over k
// devices; twice_share: in an all-reduce.
int64_t share(int64_t bytes, int64_t k) { return bytes / k * (k - 1); }
int64_t twice_share(int64_t bytes, int64_t k) { return 2 * share(bytes, k); }

// The weights of a case's model; matrices of a stack are counted per layer, since they are gathered
// and scattered per layer. Stacks of vectors are gathered and scattered once.
struct WeightSize {
  std::string path;
  std::vector<std::string> axes;
  int64_t elements = 0;  // Elements of one layer of a matrix, of all layers of a vector.
  int64_t layers = 1;
  bool in_block = false;
  bool has(std::string_view axis) const {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  }
  bool is_vector() const { return axes.size() == 1; }
  bool ends(std::string_view name) const { return path.ends_with(name); }
};

std::vector<WeightSize> weights_of(const SpmdCase& trial) {
  std::vector<WeightSize> weights;
  const auto task = Template<BaseTask>(spmd_task(trial)).instantiate();
  for (const Parameter& each : task->model().parameters().parameters()) {
    WeightSize weight{each.path, each.type.names(), each.type.elements(), 1,
                      each.path.find("x_layers[") != std::string::npos};
    if (each.stack > 0) weight.axes.erase(weight.axes.begin());
    if (each.stack > 0 && !weight.is_vector()) {
      weight.layers = each.stack;
      weight.elements /= each.stack;
    }
    weights.push_back(weight);
  }
  return weights;
}

constexpr int64_t kF32Bytes = 4, kBlocks = 2;

int64_t activation_bytes(int64_t ways) {
  return spmd_tokens().elements() * spmd_model_dims() * kF32Bytes / ways;
}

// Each gradient is all-reduced once. For a stack, all layers together or each in its iteration: the
// textbook gives the bytes, not `Traffic::count`.
TEST_CASE("replicas all-reduce each gradient once: 2(k-1)/k of the weights' bytes") {
  for (const TrialModel model : {kGpt2, kLlama, kPax}) {
    const SpmdCase trial{.model = model, .ici = {2, 2, 1}, .strategy = "replica"};
    INFO(trial.text());
    Table expected;
    for (const WeightSize& weight : weights_of(trial))
      add(&expected, "all_reduce replica data", twice_share(weight.elements * kF32Bytes, 4));
    const auto uses = collectives(lowered_step(trial));
    REQUIRE(text(table_of(uses)) == text(expected));
    REQUIRE(scalars(uses, Phase::kUpdate) == 0);  // Every device computes the whole norm.

    SpmdCase repeated = trial;
    repeated.repeated = true;
    REQUIRE(table_of(collectives(lowered_step(repeated))).at("all_reduce replica data").bytes ==
            expected.at("all_reduce replica data").bytes);
  }
}

// Whether a recomputed block gathers this weight again: vectors stay whole.
bool is_gathered_again(const WeightSize& weight) { return weight.in_block && !weight.is_vector(); }

void add_sharded(Table* table, const WeightSize& weight, int64_t gathers) {
  const int64_t bytes = weight.elements * kF32Bytes;
  if (weight.has("embed")) {
    add(table, "all_gather data", share(bytes, 4), gathers * weight.layers);
    add(table, "reduce_scatter data", share(bytes, 4), weight.layers);
  } else {
    add(table, "all_reduce data", twice_share(bytes, 4));
  }
}

TEST_CASE(
    "fully sharded: each weight is all-gathered once and its gradient reduce-scattered once") {
  for (const TrialModel model : {kGpt2, kLlama}) {
    for (const bool repeated : {false, true}) {
      const SpmdCase trial{
          .model = model, .ici = {1, 4, 1}, .strategy = "fsdp", .repeated = repeated};
      INFO(trial.text());
      Table expected;
      for (const WeightSize& weight : weights_of(trial)) add_sharded(&expected, weight, 1);
      const auto uses = collectives(lowered_step(trial));
      const Table got = table_of(uses);
      REQUIRE(got.at("all_gather data") == expected.at("all_gather data"));
      REQUIRE(got.at("reduce_scatter data") == expected.at("reduce_scatter data"));
      if (!repeated) REQUIRE(text(got) == text(expected));
      REQUIRE(scalars(uses, Phase::kUpdate) == 1);  // The norm.
    }
  }
}

TEST_CASE("fully sharded and recomputed: weights of the backward pass are all-gathered twice") {
  for (const TrialModel model : {kGpt2, kLlama}) {
    for (const bool repeated : {false, true}) {
      const SpmdCase trial{.model = model,
                           .ici = {1, 4, 1},
                           .strategy = "fsdp",
                           .repeated = repeated,
                           .remat = "save_nothing"};
      INFO(trial.text());
      Table expected;
      for (const WeightSize& weight : weights_of(trial))
        add_sharded(&expected, weight, is_gathered_again(weight) ? 2 : 1);
      const Table got = table_of(collectives(lowered_step(trial)));
      REQUIRE(got.at("all_gather data") == expected.at("all_gather data"));
      REQUIRE(got.at("reduce_scatter data") == expected.at("reduce_scatter data"));
    }
  }
}

TEST_CASE("a stack of sharded matrices is all-gathered one layer at a time in the loop") {
  for (const std::string remat : {"save_everything", "save_nothing"}) {
    const SpmdCase trial{
        .model = kLlama, .ici = {1, 4, 1}, .strategy = "fsdp", .repeated = true, .remat = remat};
    int64_t in_loops = 0;
    const Graph lowered = lowered_step(trial);
    for (const Node& node : lowered.nodes()) {
      if (node.op->name == "all_gather") REQUIRE(node.path.find("x_layers[") == std::string::npos);
      for (const auto& body : node.bodies)
        for (const Node& inner : body->nodes()) in_loops += inner.op->name == "all_gather";
    }
    REQUIRE(in_loops ==
            (remat == "save_nothing" ? 14 : 7));  // Four in attention, three in the FFN.
  }
}

// Hybrid: reduce-scatter within a replica, then all-reduce of the shard across replicas.
TEST_CASE("sharded within replicas: only shards are all-reduced across replicas") {
  const SpmdCase trial{.model = kLlama, .ici = {2, 2, 1}, .strategy = "fsdp"};
  Table expected;
  for (const WeightSize& weight : weights_of(trial)) {
    const int64_t bytes = weight.elements * kF32Bytes;
    REQUIRE(weight.has("embed"));
    add(&expected, "all_gather data", share(bytes, 2));
    add(&expected, "reduce_scatter data", share(bytes, 2));
    add(&expected, "all_reduce replica", twice_share(bytes / 2, 2));
  }
  REQUIRE(text(table_of(collectives(lowered_step(trial)))) == text(expected));
}

// Megatron: two all-reduces forward and two backward in a block, of the residual's size; one each
// for the embedding and the head. The loss has three numbers per token: the maximal score, then the
// sum of exponentials and the label's score together.
void add_tensor_parallel_loss(Table* table, const SpmdCase& trial, int64_t ways) {
  const int64_t token_bytes = spmd_tokens().elements() * kF32Bytes / ways;
  const int64_t k = trial.mesh().size("mdl");
  add(table, "all_reduce mdl", twice_share(token_bytes, k));
  add(table, "all_reduce mdl", twice_share(2 * token_bytes, k));
}

TEST_CASE("tensor parallel: 2 + 2 all-reduces per block, and none of gradients") {
  for (const TrialModel model : {kGpt2, kLlama}) {
    for (const bool repeated : {false, true}) {
      const SpmdCase trial{
          .model = model, .ici = {1, 1, 4}, .strategy = "tensor", .repeated = repeated};
      INFO(trial.text());
      Table expected;
      add(&expected, "all_reduce mdl", twice_share(activation_bytes(1), 4),
          kBlocks * (2 + 2) + 1 + 1);
      add_tensor_parallel_loss(&expected, trial, 1);
      const auto uses = collectives(lowered_step(trial));
      REQUIRE(text(table_of(uses)) == text(expected));
      REQUIRE(scalars(uses, Phase::kUpdate) == 1);
    }
  }
}

TEST_CASE("tensor and data parallel: gradients of the shards are all-reduced, too") {
  const SpmdCase trial{.model = kGpt2, .ici = {1, 2, 2}, .strategy = "tensor"};
  Table expected;
  add(&expected, "all_reduce mdl", twice_share(activation_bytes(2), 2), kBlocks * (2 + 2) + 1 + 1);
  add_tensor_parallel_loss(&expected, trial, 2);
  for (const WeightSize& weight : weights_of(trial)) {
    const bool is_split =
        weight.has("mlp") || weight.has("heads") || weight.has("kv_heads") || weight.has("vocab");
    add(&expected, "all_reduce data",
        twice_share(weight.elements * kF32Bytes / (is_split ? 2 : 1), 2));
  }
  REQUIRE(text(table_of(collectives(lowered_step(trial)))) == text(expected));
}

TEST_CASE("sequence parallel: the bytes of tensor parallel, as all-gathers and reduce-scatters") {
  const SpmdCase trial{.model = kGpt2, .ici = {1, 1, 4}, .strategy = "sequence"};
  SpmdCase tensor = trial;
  tensor.strategy = "tensor";
  Table expected;
  const int64_t pairs = kBlocks * (2 + 2) + 1 + 1;
  add(&expected, "all_gather mdl", share(activation_bytes(1), 4), pairs);
  add(&expected, "reduce_scatter mdl", share(activation_bytes(1), 4), pairs);
  add_tensor_parallel_loss(&expected, trial, 1);
  const int64_t moved = expected.at("all_gather mdl").bytes +
                        expected.at("reduce_scatter mdl").bytes +
                        expected.at("all_reduce mdl").bytes;
  REQUIRE(moved == table_of(collectives(lowered_step(tensor))).at("all_reduce mdl").bytes);
  // Weights applied to the residual see a part of each sequence: their gradients are partial sums.
  for (const WeightSize& weight : weights_of(trial))
    if (weight.path.find("norm.") != std::string::npos || weight.ends("final_ln.scale") ||
        weight.ends("final_ln.bias") || weight.ends("down_bias") || weight.ends("output_bias") ||
        weight.ends("position_emb.w"))
      add(&expected, "all_reduce mdl", twice_share(weight.elements * kF32Bytes, 4));
  REQUIRE(text(table_of(collectives(lowered_step(trial)))) == text(expected));
}

TEST_CASE("vocabulary parallel alone: the embedding, the head and three numbers per token") {
  const SpmdCase trial{.model = kLlama, .ici = {1, 1, 4}, .strategy = "vocabulary"};
  Table expected;
  add(&expected, "all_reduce mdl", twice_share(activation_bytes(1), 4), 2);
  add_tensor_parallel_loss(&expected, trial, 1);
  REQUIRE(text(table_of(collectives(lowered_step(trial)))) == text(expected));
}

// Ulysses: queries, keys, values and results are exchanged in an all-to-all each, forward and
// backward, and a device sends (k-1)/k of its part. Segment ids are gathered once for all layers,
// and no other activation moves.
TEST_CASE("context parallel: 4 + 4 all-to-alls per block, and each gradient is all-reduced once") {
  struct Sizes {
    TrialModel model;
    int64_t devices, query_dims, key_dims;  // Together in all heads, as sent.
  };
  for (const Sizes& sizes : {Sizes{kGpt2, 4, 32, 32}, Sizes{kPax, 2, 32, 32},
                             Sizes{kLlama, 4, 64, 32}, Sizes{kLlama, 8, 64, 64}}) {
    for (const bool repeated : {false, true}) {
      const SpmdCase trial{.model = sizes.model,
                           .ici = {1, 1, sizes.devices},
                           .strategy = "context",
                           .repeated = repeated};
      INFO(trial.text());
      const int64_t k = sizes.devices, token_bytes = spmd_tokens().elements() * kF32Bytes;
      Table expected;
      for (const int64_t dims : {sizes.query_dims, sizes.key_dims})
        add(&expected, "all_to_all mdl", share(token_bytes * dims / k, k), kBlocks * (2 + 2));
      add(&expected, "all_gather mdl", share(token_bytes, k));
      for (const WeightSize& weight : weights_of(trial))
        add(&expected, "all_reduce mdl", twice_share(weight.elements * kF32Bytes, k),
            weight.layers);
      Table got = table_of(collectives(lowered_step(trial)));
      expected["all_reduce mdl"].count = got["all_reduce mdl"].count;
      REQUIRE(text(got) == text(expected));
    }
  }
}

// Ring attention: keys and values make k - 1 steps in each pass, with their gradients in the
// backward pass. For the zig-zag order queries, keys, values and results change devices once.
TEST_CASE("ring attention: keys and values make k - 1 steps forward and backward") {
  for (const int64_t k : {2, 4, 8}) {
    for (const bool repeated : {false, true}) {
      const SpmdCase trial{.model = kGpt2,
                           .ici = {1, 1, k},
                           .strategy = "ring",
                           .repeated = repeated,
                           .packed = false};
      INFO(trial.text());
      const int64_t shard = activation_bytes(k);
      const int64_t lse = spmd_tokens().elements() * TrialSizes{}.heads * kF32Bytes / k;
      const int64_t forward = (k - 1) * 2 * shard + 4 * shard + lse;
      const int64_t backward = (k - 1) * (2 + 2) * shard + 8 * shard + lse;
      Table got = table_of(collectives(lowered_step(trial)));
      REQUIRE(got["permute mdl"].bytes == kBlocks * (forward + backward));
      got.erase("permute mdl");
      Table expected;
      for (const WeightSize& weight : weights_of(trial))
        add(&expected, "all_reduce mdl", twice_share(weight.elements * kF32Bytes, k),
            weight.layers);
      expected["all_reduce mdl"].count = got["all_reduce mdl"].count;
      REQUIRE(text(got) == text(expected));
    }
  }
}

// A recomputed block repeats one all-reduce: the last one is not needed.
TEST_CASE(
    "recomputing a tensor-parallel block costs one more all-reduce, saving its sums costs none") {
  SpmdCase trial{.model = kGpt2, .ici = {1, 1, 4}, .strategy = "tensor", .repeated = true};
  const int64_t kept = table_of(collectives(lowered_step(trial))).at("all_reduce mdl").count;
  trial.remat = "save_nothing";
  REQUIRE(table_of(collectives(lowered_step(trial))).at("all_reduce mdl").count == kept + kBlocks);
  trial.remat = "out_proj";
  REQUIRE(table_of(collectives(lowered_step(trial))).at("all_reduce mdl").count == kept);
}

TEST_CASE("weights used in bf16 are gathered in bf16, and gradients are reduced in f32") {
  const SpmdCase trial{.model = kLlama,
                       .ici = {1, 4, 1},
                       .strategy = "fsdp",
                       .repeated = true,
                       .compute = DType::kBF16};
  Table expected;
  for (const WeightSize& weight : weights_of(trial)) {
    const bool is_norm = weight.ends("norm.scale") || weight.ends("final_ln.scale");
    const int64_t width = is_norm ? 4 : 2;  // Norms compute in f32.
    add(&expected, "all_gather data", share(weight.elements * width, 4), weight.layers);
    add(&expected, "reduce_scatter data", share(weight.elements * kF32Bytes, 4), weight.layers);
  }
  REQUIRE(text(table_of(collectives(lowered_step(trial)))) == text(expected));
}

}  // namespace
}  // namespace tessera
