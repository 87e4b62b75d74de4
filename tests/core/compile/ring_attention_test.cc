// SPDX-License-Identifier: Apache-2.0
// Attention over sequences that are split between devices: values and gradients of one device, and
// the errors.
#include <algorithm>
#include <cmath>

#include "core/compile/autodiff/autodiff.h"
#include "core/compile/cost.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

struct RingCase {
  Mesh mesh;
  std::string split;  // Split of the sequence: "/ctx".
  AttentionMask mask = AttentionMask::kCausal;
  bool packed = true;
  int64_t seq = 24;
  std::string heads = "heads=4", kv_heads = "kv_heads=2";
  double scale = 0.6, logit_cap = 4.0;
  int64_t window = 0, first_query = 0;
};

// Attention, and its gradients by q, k and v.
Graph traced(const RingCase& ring) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, ring.mesh, rules);
  const auto typed = [&](const char* name, InputKind kind, const std::string& text) {
    return input(name, kind, parse_type(text));
  };
  const std::string seq = fmt::format("seq{}={}", ring.split, ring.seq), key_seq = "key_" + seq;
  const auto parameter = [&](const char* name, const std::string& axis, const std::string& heads) {
    return typed(name, InputKind::kParameter,
                 fmt::format("f32[\"batch=2 {} {} head_dim=3\"]", axis, heads));
  };
  const Tensor q = parameter("q", seq, ring.heads), k = parameter("k", key_seq, ring.kv_heads),
               v = parameter("v", key_seq, ring.kv_heads);
  AttentionOptions options{.mask = ring.mask,
                           .scale = ring.scale,
                           .logit_cap = ring.logit_cap,
                           .window = ring.window,
                           .first_query = ring.first_query};
  if (ring.packed) {
    const auto ids = [&](const char* name, const std::string& axis) {
      return typed(name, InputKind::kBatch, fmt::format("i32[\"batch=2 {}\"]", axis));
    };
    options.segment_ids = ids("segments", seq);
    options.key_segment_ids = ids("key segments", key_seq);
  }
  const Tensor out = attention(q, k, v, options);
  output("out", out);
  const std::vector<Tensor> all = gradients(place(reduce_sum(square(out) + out)), {q, k, v});
  output("dq", reduced(all[0]));
  output("dk", reduced(all[1]));
  output("dv", reduced(all[2]));
  return graph;
}

// Documents of five tokens; the last queries of a row belong to none of the keys' documents.
ReferenceInputs inputs_of(const Graph& graph) {
  ReferenceInputs inputs;
  for (const GraphInput& each : graph.inputs()) {
    const Type& type = graph.type(each.value);
    for (int64_t i = 0; i < type.elements(); ++i) {
      const int64_t position = i % type.axes[1].size;
      const bool none = each.name == "segments" && position + 3 > type.axes[1].size;
      inputs[each.name].push_back(each.kind == InputKind::kBatch
                                      ? static_cast<double>(none ? -1 : position / 5)
                                      : std::sin(static_cast<double>(7 * i + each.name[0])));
    }
  }
  return inputs;
}

void require_same(const RingCase& ring) {
  RingCase one = ring;
  one.mesh = {};
  one.split = "";
  one.heads = "heads=4";
  one.kv_heads = "kv_heads" + ring.kv_heads.substr(ring.kv_heads.find('='));
  const Graph whole = traced(one), split = traced(ring);
  const ReferenceInputs inputs = inputs_of(whole);
  const auto got = SimulatedMesh(split, ring.mesh).run(inputs);
  for (const auto& [name, array] : evaluate(whole, inputs)) {
    CAPTURE(name);
    for (size_t i = 0; i < array.values.size(); ++i)
      REQUIRE(std::abs(got.at(name)[i] - array.values[i]) < 1e-12 * std::max(1.0, ring.scale));
  }
}

TEST_CASE("Attention in a ring has the values and gradients of one device") {
  const AttentionMask mask = GENERATE(AttentionMask::kCausal, AttentionMask::kFull);
  const bool packed = GENERATE(false, true);
  const int64_t devices = GENERATE(2, 3, 4);
  CAPTURE(mask == AttentionMask::kCausal, packed, devices);
  require_same({.mesh = Mesh({{"ctx", devices}}), .split = "/ctx", .mask = mask, .packed = packed});
  // The fewest tokens: one in each chunk, or on each device.
  require_same({.mesh = Mesh({{"ctx", devices}}),
                .split = "/ctx",
                .mask = mask,
                .packed = packed,
                .seq = mask == AttentionMask::kCausal ? 2 * devices : devices});
}

TEST_CASE("A ring over two mesh axes, and beside split heads, has one device's values") {
  const Mesh mesh({{"data", 2}, {"ctx", 2}, {"mdl", 2}});
  require_same({.mesh = mesh, .split = "/ctx/data"});
  require_same(
      {.mesh = mesh, .split = "/ctx", .heads = "heads/mdl=4", .kv_heads = "kv_heads/mdl=2"});
  require_same({.mesh = mesh,
                .split = "/data",
                .mask = AttentionMask::kFull,
                .heads = "heads/mdl=4",
                .kv_heads = "kv_heads=1"});
}

// The exponential of a score alone would be infinite.
TEST_CASE("Scores of a ring may be far apart") {
  for (const AttentionMask mask : {AttentionMask::kCausal, AttentionMask::kFull})
    require_same({.mesh = Mesh({{"ctx", 4}}),
                  .split = "/ctx",
                  .mask = mask,
                  .packed = false,
                  .scale = 1000.0,
                  .logit_cap = 0.0});
}

TEST_CASE("The backward pass sends keys again instead of storing those of all devices") {
  const RingCase ring{
      .mesh = Mesh({{"ctx", 4}}), .split = "/ctx", .mask = AttentionMask::kFull, .packed = false};
  const int64_t key_bytes = 2 * 6 * 2 * 3 * 4;  // A device's keys, or values.
  const Graph lowered = lower(traced(ring), ring.mesh);
  int64_t forward = 0, backward = 0;
  for (const CollectiveUse& use : collectives(lowered)) {
    if (use.op != "permute") continue;
    (use.phase == Phase::kForward ? forward : backward) += use.bytes_per_step();
  }
  REQUIRE(forward == 3 * 2 * key_bytes);
  REQUIRE(backward == 3 * 4 * key_bytes);
}

// Windows within a device's part of 6, 8 or 12 tokens, of it, over two and three of them, and of
// the whole sequence or more.
TEST_CASE("Attention in a window of a split sequence has one device's values and gradients") {
  const int64_t window = GENERATE(1, 2, 6, 7, 8, 9, 12, 14, 20, 23, 24, 100);
  const bool packed = GENERATE(false, true);
  const int64_t devices = GENERATE(2, 3, 4);
  CAPTURE(window, packed, devices);
  require_same(
      {.mesh = Mesh({{"ctx", devices}}), .split = "/ctx", .packed = packed, .window = window});
}

TEST_CASE("A window that also has later keys has one device's values in a split sequence") {
  const int64_t first_query = GENERATE(1, 5, 9, 23);
  const int64_t window = GENERATE(0, 1, 4, 11, 40);
  const bool packed = GENERATE(false, true);
  CAPTURE(first_query, window, packed);
  require_same({.mesh = Mesh({{"ctx", 4}}),
                .split = "/ctx",
                .packed = packed,
                .window = window,
                .first_query = first_query});
}

TEST_CASE("A window in a sequence split over two mesh axes, and beside split heads") {
  const Mesh mesh({{"data", 2}, {"ctx", 3}, {"mdl", 2}});
  const bool packed = GENERATE(false, true);
  // 4 or 8 tokens a device, of which the furthest sends some.
  require_same({.mesh = mesh, .split = "/ctx/data", .packed = packed, .window = 7});
  require_same({.mesh = mesh,
                .split = "/ctx",
                .packed = packed,
                .heads = "heads/mdl=4",
                .kv_heads = "kv_heads/mdl=2",
                .window = 11});
  require_same({.mesh = mesh,
                .split = "/data",
                .packed = packed,
                .heads = "heads/mdl=4",
                .kv_heads = "kv_heads=1",
                .window = 5,
                .first_query = 2});
}

TEST_CASE("A device is sent the keys of its windows, and multiplies with them alone") {
  const RingCase ring{.mesh = Mesh({{"ctx", 4}}), .split = "/ctx", .packed = false, .window = 9};
  const Graph lowered = lower(traced(ring), ring.mesh);
  // 8 keys before its own 6: those of one device, and two of the next one.
  const int64_t halo_bytes = 2 * 8 * 2 * 3 * 4;
  int64_t forward = 0, backward = 0;
  for (const CollectiveUse& use : collectives(lowered)) {
    REQUIRE(use.op == "permute");
    (use.phase == Phase::kForward ? forward : backward) += use.bytes_per_step();
  }
  REQUIRE(forward == 2 * halo_bytes);
  REQUIRE(backward == 4 * halo_bytes);
  double flops = 0.0;
  for (const Node& node : lowered.nodes())
    if (node.op == &kAttentionOp) flops += node.op->flops(lowered, node);
  // Two products over the scores of 6 queries with 9 keys each, of which the corner counts as half.
  REQUIRE(flops == 2.0 * 2.0 * 2 * 4 * 3 * (6 * 9 - 0.5));
}

TEST_CASE("Sequences that cannot be attended to in a ring are refused") {
  const Mesh mesh({{"ctx", 4}});
  const auto of = [&](const std::string& query, const std::string& key, AttentionMask mask,
                      int64_t window = 0) {
    return outcome(mesh,
                   {"f32[\"batch=2 " + query + " heads=2 head_dim=3\"]",
                    "f32[\"batch=2 " + key + " kv_heads=2 head_dim=3\"]"},
                   [&](const std::vector<Tensor>& in) {
                     return attention(in[0], in[1], in[1], {.mask = mask, .window = window});
                   });
  };
  const AttentionMask causal = AttentionMask::kCausal;
  REQUIRE(of("seq/ctx=16", "key_seq/ctx=16", causal) == "f32[\"batch seq/ctx heads head_dim\"]");
  REQUIRE(of("seq/ctx=12", "key_seq/ctx=12", causal) ==
          "attention: causal attention cuts seq=12 of x into two chunks for each of the devices of "
          "ctx=4; the nearest size that can be cut is 16");
  REQUIRE(of("seq/ctx=12", "key_seq/ctx=12", AttentionMask::kFull) ==
          "f32[\"batch seq/ctx heads head_dim\"]");
  REQUIRE(of("seq/ctx=12", "key_seq/ctx=12", causal, 11) ==
          "f32[\"batch seq/ctx heads head_dim\"]");
  REQUIRE(of("seq/ctx=12", "key_seq/ctx=12", causal, 12).find("into two chunks") !=
          std::string::npos);
  REQUIRE(of("seq/ctx=16", "key_seq=16", causal) ==
          "attention: x has seq/ctx=16, y has key_seq=16; split both the same way, or neither");
}

}  // namespace
}  // namespace tessera
