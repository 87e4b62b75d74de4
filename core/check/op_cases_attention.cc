// SPDX-License-Identifier: Apache-2.0
// Test cases of attention: whole sequences, sinks, and the cache of decoding.
#include <array>

#include <fmt/core.h>

#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"

namespace tessera {
namespace {

Tensors attend(const Tensors& in, AttentionOptions options) {
  if (in.size() > 3) options.segment_ids = in[3];
  if (in.size() > 4) options.key_segment_ids = in[4];
  return {attention(in[0], in[1], in[2], options)};
}

void add_small_attentions(std::vector<OpCase>& rows) {
  const auto add = [&](const std::string& q, const std::string& kv, AttentionOptions options,
                       bool segments) {
    std::vector<std::string> types = {q, kv, kv};
    if (segments) types.push_back("i32[\"batch=2 seq=5\"]");
    add_case(rows, kAttentionOp, types, [options](const Tensors& in) {
      return attend(in, options);
    }).ids = 2;
  };
  const std::string q = "float[\"batch=2 seq=5 heads=4 head_dim=3\"]";
  const std::string kv = "float[\"batch=2 key_seq=5 kv_heads=4 head_dim=3\"]";
  const std::string grouped = "float[\"batch=2 key_seq=5 kv_heads=2 head_dim=3\"]";
  const std::string single = "float[\"batch=2 key_seq=5 kv_heads=1 head_dim=3\"]";
  const std::string cross = "float[\"batch=2 key_seq=7 kv_heads=4 head_dim=3\"]";
  add(q, kv, {.scale = 0.6}, false);
  add(q, kv, {.mask = AttentionMask::kFull, .scale = 0.6}, false);
  add(q, grouped, {.scale = 0.6}, true);
  add(q, single, {.scale = 0.6, .logit_cap = 1.5}, true);
  add(q, cross, {.mask = AttentionMask::kFull, .scale = 0.6}, false);
  add(q, grouped, {.scale = 0.6, .window = 3}, false);
  add(q, single, {.scale = 0.6, .logit_cap = 1.5, .window = 2}, false);
  add(q, cross, {.scale = 0.6, .window = 3, .first_query = 2}, false);
  add("float[\"batch=1 seq=1 heads=1 head_dim=1\"]",
      "float[\"batch=1 key_seq=1 kv_heads=1 head_dim=1\"]", {}, false);
}

// Attention with sinks, the last operand.
void add_sinks(std::vector<OpCase>& rows) {
  const std::string q = "float[\"batch=2 seq=5 heads=4 head_dim=3\"]",
                    kv = "float[\"batch=2 key_seq=5 kv_heads=2 head_dim=3\"]",
                    sinks = "float[\"heads=4\"]";
  for (const int64_t window : {0, 2})
    add_case(rows, kAttentionSinksOp, {q, kv, kv, sinks}, [window](const Tensors& in) -> Tensors {
      return {attention(in[0], in[1], in[2], {.scale = 0.6, .window = window, .sinks = in[3]})};
    });
  add_case(rows, kAttentionSinksOp, {q, kv, kv, sinks, "i32[\"batch=2 seq=5\"]"},
           [](const Tensors& in) -> Tensors {
             return {attention(in[0], in[1], in[2],
                               {.logit_cap = 1.5, .segment_ids = in[4], .sinks = in[3]})};
           })
      .ids = 2;
}

// Adds start positions before, inside and after the cache; one and several queries; few keys and
// several blocks.
void add_caches(std::vector<OpCase>& rows) {
  rows.push_back(
      {.op = &kCacheUpdateOp,
       .inputs = {"float[\"batch=3 kv_heads=2 key_seq=5 head_dim=3\"]",
                  "float[\"batch=3 seq=2 kv_heads=2 head_dim=3\"]", "i32[\"batch=3\"]"},
       .build = [](const Tensors& in) -> Tensors {
         const Tensor two = constant(2.0, DType::kI32);
         return {cache_update(in[0], in[1], in[2]), cache_update(in[0], in[1], in[2] - two)};
       },
       .differentiable = false,
       .ids = 8});
  for (const int seq : {1, 3, 70}) {
    for (const int keys : {7, 600}) {
      const std::string kv =
          fmt::format("float[\"batch=2 kv_heads=2 key_seq={} head_dim=20\"]", keys);
      for (const CachedAttentionOptions& each :
           {CachedAttentionOptions{.scale = 0.4}, CachedAttentionOptions{.logit_cap = 2.0}}) {
        rows.push_back(
            {.op = &kCachedAttentionOp,
             .inputs = {fmt::format("float[\"batch=2 seq={} heads=4 head_dim=20\"]", seq), kv, kv,
                        "i32[\"batch=2\"]", "float[\"heads=4\"]"},
             .build = [each](const Tensors& in) -> Tensors {
               const Tensor starts = in[3] - constant(2.0, DType::kI32);
               CachedAttentionOptions with_sinks = each;
               with_sinks.sinks = in[4];
               return {cached_attention(in[0], in[1], in[2], starts, each),
                       cached_attention(in[0], in[1], in[2], starts, with_sinks)};
             },
             .differentiable = false,
             .ids = keys + 4});
      }
    }
  }
}

void add_large_attentions(std::vector<OpCase>& rows) {
  const auto add = [&](std::vector<std::string> types, const AttentionOptions& options) {
    OpCase& row = add_case(rows, kAttentionOp, std::move(types),
                           [options](const Tensors& in) -> Tensors { return attend(in, options); });
    row.differentiable = false;
    row.tolerance_f32 = 3e-5;
  };
  add({"float[\"batch=2 seq=133 heads=4 head_dim=16\"]",
       "float[\"batch=2 key_seq=133 kv_heads=2 head_dim=16\"]",
       "float[\"batch=2 key_seq=133 kv_heads=2 head_dim=16\"]", "i32[\"batch=2 seq=133\"]"},
      {.scale = 0.25});
  // Heads of 8 elements and more, which libraries compute too.
  const std::string wide = "float[\"batch=1 seq=37 heads=2 head_dim=64\"]";
  const std::string wide_keys = "float[\"batch=1 key_seq=37 kv_heads=2 head_dim=64\"]";
  add({wide, wide_keys, wide_keys}, {.scale = 0.125});
  add({wide, wide_keys, wide_keys},
      {.mask = AttentionMask::kFull, .scale = 0.125, .logit_cap = 2.0});
}

}  // namespace

// Several blocks of queries and keys, grouped heads, packed segments.
void add_attention_blocks(std::vector<OpCase>& rows, bool small) {
  std::vector<std::array<int, 5>> sizes = {
      {2, 300, 4, 2, 64}, {1, 256, 6, 6, 64}, {1, 270, 4, 1, 128}, {1, 129, 2, 2, 256}};
  if (small) sizes = {{1, 70, 2, 1, 64}};
  for (const auto& [batch, seq, heads, kv_heads, head_dim] : sizes) {
    const std::string kv = floats_of(
        fmt::format("batch={} key_seq={} kv_heads={} head_dim={}", batch, seq, kv_heads, head_dim));
    std::vector<std::string> types = {
        floats_of(fmt::format("batch={} seq={} heads={} head_dim={}", batch, seq, heads, head_dim)),
        kv, kv};
    for (const std::string segments : {"", "seq", "key_seq"}) {
      if (!segments.empty())
        types.push_back(fmt::format("i32[\"batch={} {}={}\"]", batch, segments, seq));
      add_case(rows, kAttentionOp, types,
               [](const Tensors& in) { return attend(in, {.scale = 0.125}); });
    }
  }
}

void add_attentions(std::vector<OpCase>& rows) {
  add_small_attentions(rows);
  add_sinks(rows);
  add_caches(rows);
  add_large_attentions(rows);
}

}  // namespace tessera
