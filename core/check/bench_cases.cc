// SPDX-License-Identifier: Apache-2.0
#include "core/check/bench_cases.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check/run_graph.h"
#include "core/graph/mesh.h"
#include "core/graph/text.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/gather.h"
#include "core/ops/grouped_product.h"
#include "core/ops/linear_recurrence.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/rotary.h"

namespace tessera {
namespace {

BenchCase attention_case(const std::string& dtype, const BenchAttention& s) {
  const std::string kv = fmt::format("{}[\"batch={} key_seq={} kv_heads={} head_dim={}\"]", dtype,
                                     s.batch, s.seq, s.kv_heads, s.head_dim);
  return {fmt::format("attention/{}/b{}/s{}/h{}/kv{}/d{}{}", dtype, s.batch, s.seq, s.heads,
                      s.kv_heads, s.head_dim, s.window > 0 ? fmt::format("/w{}", s.window) : ""),
          {fmt::format("{}[\"batch={} seq={} heads={} head_dim={}\"]", dtype, s.batch, s.seq,
                       s.heads, s.head_dim),
           kv, kv},
          [window = s.window](const Tensors& in) {
            attention(in[0], in[1], in[2], {.scale = 0.125, .window = window});
          }};
}

// With the delta rule.
BenchCase recurrence_case(const std::string& dtype, const BenchRecurrence& s) {
  const std::string tokens = fmt::format("batch={} seq={} heads={}", s.batch, s.seq, s.heads);
  const std::string key = fmt::format("{}[\"{} key_dim={}\"]", dtype, tokens, s.key_dim);
  const std::string gate = fmt::format("f32[\"{}\"]", tokens);
  return {
      fmt::format("linear_recurrence/{}/b{}/s{}/h{}/k{}/v{}", dtype, s.batch, s.seq, s.heads,
                  s.key_dim, s.value_dim),
      {key, key, fmt::format("{}[\"{} value_dim={}\"]", dtype, tokens, s.value_dim), gate, gate},
      [](const Tensors& in) { linear_recurrence(in[0], in[1], in[2], in[3], in[4]); }};
}

// Adds ops on the activations between products.
void add_activation_cases(std::vector<BenchCase>& cases, const std::string& dtype,
                          const BenchSizes& s) {
  const std::string ids = fmt::format("i32[\"batch={} seq={}\"]", s.batch, s.seq);
  const std::string hidden =
      fmt::format("{}[\"batch={} seq={} embed={}\"]", dtype, s.batch, s.seq, s.embed);
  const std::string scale = fmt::format("f32[\"embed={}\"]", s.embed);
  const auto add = [&](const char* op, std::vector<std::string> inputs,
                       std::function<void(const Tensors&)> trace, bool gradient = true) {
    cases.push_back({op + ("/" + dtype), std::move(inputs), std::move(trace), gradient});
  };
  add("rms_norm", {hidden, scale},
      [](const Tensors& in) { rms_norm(in[0], in[1], "embed", 1e-6); });
  add("layer_norm", {hidden, scale, scale},
      [](const Tensors& in) { layer_norm(in[0], in[1], in[2], "embed", 1e-6); });
  add(
      "rotary",
      {fmt::format("{}[\"batch={} seq={} heads={} head_dim=64\"]", dtype, s.batch, s.seq,
                   (s.embed + 63) / 64),
       ids},
      [](const Tensors& in) { rotary(in[0], in[1], "head_dim"); }, /*gradient=*/false);
  add(
      "dropout", {hidden, "i32[\"\"]"}, [](const Tensors& in) { dropout(in[0], 0.1, in[1]); },
      /*gradient=*/false);
  add(
      "gated activation", {hidden, hidden}, [](const Tensors& in) { silu(in[0]) * in[1]; },
      /*gradient=*/false);
  add(
      "gated activation gradient", {hidden, hidden, hidden},
      [](const Tensors& in) {
        silu_grad(in[0], in[2] * in[1]);
        in[2] * silu(in[0]);
      },
      /*gradient=*/false);
  add("embedding", {fmt::format("{}[\"vocab={} embed={}\"]", dtype, s.vocab, s.embed), ids},
      [](const Tensors& in) { gather(in[0], in[1], "vocab"); });
  cases.back().integers = s.vocab;
}

// Adds rows times the matrices of their experts, and as many rows times one matrix.
void add_products(std::vector<BenchCase>& cases, const std::string& dtype, const BenchSizes& s) {
  const std::string rows =
      fmt::format("{}[\"row={} embed={}\"]", dtype, s.routed_rows, s.expert_embed);
  const std::string matrix = fmt::format("embed={} mlp={}\"]", s.expert_embed, s.expert_mlp);
  cases.push_back(
      {"grouped product/" + dtype,
       {rows, fmt::format("{}[\"experts={} {}", dtype, s.experts, matrix),
        fmt::format("i32[\"row={}\"]", s.routed_rows)},
       [](const Tensors& in) { grouped_product(in[0], in[1], in[2], "experts", over("embed")); }});
  cases.back().integers = s.experts;
  cases.push_back({"dense product/" + dtype,
                   {rows, fmt::format("{}[\"{}", dtype, matrix)},
                   [](const Tensors& in) { einsum(in[0], in[1], over("embed")); }});
}

// Adds a product in bf16 with both gradients, and the product alone with 8-bit floats.
void add_model_product(std::vector<BenchCase>& cases, const BenchProduct& s) {
  const std::vector<std::string> inputs = {
      fmt::format("bf16[\"token={} embed={}\"]", s.tokens, s.inputs),
      fmt::format("bf16[\"embed={} mlp={}\"]", s.inputs, s.outputs)};
  const std::string size = fmt::format("{}x{}x{}", s.tokens, s.inputs, s.outputs);
  cases.push_back({"product/bf16/" + size, inputs,
                   [](const Tensors& in) { einsum(in[0], in[1], over("embed")); }});
  cases.push_back({"product/fp8/" + size, inputs,
                   [](const Tensors& in) { fp8_product(in[0], in[1], over("embed")); },
                   /*gradient=*/false});
}

}  // namespace

std::vector<BenchCase> bench_cases(const BenchSizes& s) {
  std::vector<BenchCase> cases;
  for (const std::string dtype : {"f32", "bf16"}) {
    for (const BenchAttention& each : s.attention) cases.push_back(attention_case(dtype, each));
    for (const BenchRecurrence& each : s.recurrences) cases.push_back(recurrence_case(dtype, each));
    add_activation_cases(cases, dtype, s);
    add_products(cases, dtype, s);
    cases.push_back({"cross_entropy/" + dtype,
                     {fmt::format("{}[\"row={} vocab={}\"]", dtype, s.loss_rows, s.vocab),
                      fmt::format("i32[\"row={}\"]", s.loss_rows)},
                     [](const Tensors& in) { cross_entropy(in[0], in[1], "vocab"); }});
  }
  for (const BenchProduct& each : s.products) add_model_product(cases, each);
  for (BenchCase& each : cases) each.integers = std::min(each.integers, s.vocab);
  const std::string slot = fmt::format("f32[\"embed={}\"]", s.weights), scalar = "f32[\"\"]";
  cases.push_back({"adam_update/f32",
                   {slot, slot, slot, slot, scalar, "bool[\"\"]"},
                   [](const Tensors& in) {
                     adam_update({in[0], in[1], in[2]}, in[3], in[4], in[4], in[4], in[5], {});
                   },
                   /*gradient=*/false,
                   /*integers=*/2});
  return cases;
}

Graph traced_bench(const BenchCase& row) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  Tensors inputs;
  for (size_t i = 0; i < row.inputs.size(); ++i)
    inputs.push_back(input(fmt::format("x{}", i), InputKind::kBatch, parse_type(row.inputs[i])));
  row.trace(inputs);
  if (row.gradient) traced_gradient(graph, Node(graph.nodes().front()));
  int64_t results = 0;
  for (const Node& node : std::vector<Node>(graph.nodes().begin(), graph.nodes().end()))
    for (const ValueId value : node.outputs)
      output(fmt::format("y{}", results++), Tensor(&graph, value));
  return graph;
}

}  // namespace tessera
