// SPDX-License-Identifier: Apache-2.0
// The loops of attention over blocks of queries and keys (Dao et al., 2022), for one head at a
// time. No threads, no graph; scratch memory is the caller's.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// q["batch queries heads head_dim"], k and v["batch keys kv_heads head_dim"]; query head h reads
// key head h / group(). `cached`: k and v are ["batch kv_heads keys head_dim"], and query i of a
// row stands at key position starts[row] + i.
struct AttentionShape {
  DType dtype = DType::kF32;  // Or bf16; of all tensors but lse.
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
  bool cached = false;
  float scale = 1.0f;
  float cap = 0.0f;  // 0: none.
  // Products of bf16 pairs (vdpbf16ps) instead of products in f32; see attention_in_pairs.
  bool pairs = false;

  int64_t group() const { return heads / kv_heads; }
  int64_t query_blocks() const;
  int64_t key_blocks() const;  // Of the gradient.
};

// Whether attention of this dtype multiplies bf16 pairs: at level avx512_bf16, where that is twice
// as fast as f32. (Processors with AMX run vdpbf16ps at half the rate of f32, measured on Sapphire
// Rapids.) Pairs need an even head_dim.
bool attention_in_pairs(DType dtype, int64_t head_dim);

struct AttentionOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const int32_t* segments = nullptr;  // ["batch queries"] and ["batch keys"], or null.
  const int32_t* key_segments = nullptr;
  const int32_t* starts = nullptr;  // ["batch"], of a cache.
};

struct AttentionResults {
  void* out = nullptr;
  float* lse = nullptr;  // ["batch heads queries"]; null: not wanted.
};

// One block of queries of one head.
void attention_block(const AttentionShape& shape, const AttentionOperands& operands,
                     const AttentionResults& results, int64_t batch, int64_t head, int64_t block,
                     float* scratch);
int64_t attention_scratch_floats(const AttentionShape& shape);

struct AttentionGradOperands {
  AttentionOperands forward;
  const void* out = nullptr;
  const float* lse = nullptr;
  const void* cotangent = nullptr;  // Of out.
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

// Of one key head and the query heads that read it: all; or dk and dv of a block of keys; or dq of
// a block of queries of the `member`th of those heads. The two kinds of parts together give the
// same bits as all at once, and compute the scores twice.
struct AttentionGradPart {
  enum class Kind { kHead, kKeys, kQueries } kind = Kind::kHead;
  int64_t batch = 0, kv_head = 0;
  int64_t member = 0, block = 0;
};
void attention_grad(const AttentionShape& shape, const AttentionGradOperands& operands,
                    const AttentionGradPart& part, float* scratch);
int64_t attention_grad_scratch_floats(const AttentionShape& shape);

}  // namespace tessera
