// SPDX-License-Identifier: Apache-2.0
// The vector loops of attention, one head at a time, without threads or graph; the caller gives
// scratch memory.
//
// The algorithm is FlashAttention-2 (Dao, 2023). A block of queries goes over blocks of keys, and
// only one block of scores exists at a time. Each query keeps the running maximum of its scores and
// the running sum of exp(score - maximum) (online softmax: Milakov and Gimelshein, 2018); when the
// maximum grows, older sums are multiplied by exp(old maximum - new maximum). Blocks that the mask
// hides completely are skipped. The backward pass recomputes the scores from the saved
// lse = maximum + log(sum). Scores are stored transposed, a row per key and a column per query, so
// that vectors run along queries and no sum crosses lanes.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

inline constexpr int64_t kQueryBlock = 64;  // A multiple of the lanes of every target.
inline constexpr int64_t kKeyBlock = 256;

// Widths in scratch memory are padded to 16 floats, whole vectors of every target.
inline int64_t padded_width(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Divides scratch memory into consecutive arrays.
class ScratchAllocator {
 public:
  explicit ScratchAllocator(float* memory) : next_(memory) {}
  float* take(int64_t floats) {
    float* part = next_;
    next_ += padded_width(floats);
    return part;
  }

 private:
  float* next_;
};

// q["batch queries heads head_dim"], k and v["batch keys kv_heads head_dim"]; query head h reads
// key head h / group(). If `cached`, k and v are ["batch kv_heads keys head_dim"] and query i of
// batch row b is at key position starts[b] + i.
struct AttentionShape {
  DType dtype = DType::kF32;  // Dtype of all tensors except lse: f32 or bf16.
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
  int64_t window = 0;       // 0: none.
  int64_t first_query = 0;  // Key position of query 0 (not of a cache).
  bool cached = false;
  float scale = 1.0f;
  float cap = 0.0f;  // 0: none.
  // Multiply pairs of bf16 (vdpbf16ps) instead of f32; see attention_in_pairs.
  bool pairs = false;

  int64_t group() const { return heads / kv_heads; }
  int64_t query_blocks() const { return (queries + kQueryBlock - 1) / kQueryBlock; }
  int64_t key_blocks() const { return (keys + kKeyBlock - 1) / kKeyBlock; }
};

// Returns whether attention of this dtype multiplies pairs of bf16: at level avx512_bf16, where
// they are twice as fast as f32, with an even head_dim. (Processors with AMX run vdpbf16ps at half
// the rate of f32, measured on Sapphire Rapids.)
bool attention_in_pairs(DType dtype, int64_t head_dim);

struct AttentionOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const int32_t* segments = nullptr;  // ["batch queries"] and ["batch keys"], or null.
  const int32_t* key_segments = nullptr;
  const int32_t* starts = nullptr;  // ["batch"], for a cache.
};

struct AttentionResults {
  void* out = nullptr;
  float* lse = nullptr;  // ["batch heads queries"].
};

// Computes attention of one block of queries of one head.
void attention_block(const AttentionShape& shape, const AttentionOperands& operands,
                     const AttentionResults& results, int64_t batch, int64_t head, int64_t block,
                     float* scratch);
int64_t attention_scratch_floats(const AttentionShape& shape);

struct AttentionGradOperands {
  AttentionOperands forward;
  const void* out = nullptr;
  const float* lse = nullptr;
  const void* cotangent = nullptr;  // Cotangent of out.
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

// The part of the gradients of one key head and its query heads to compute. kHead: all of it.
// kKeys: dk and dv of a block of keys. kQueries: dq of a block of queries of query head number
// `member`. kKeys and kQueries together give the same bits as kHead but compute the scores twice.
struct AttentionGradPart {
  enum class Kind { kHead, kKeys, kQueries } kind = Kind::kHead;
  int64_t batch = 0, kv_head = 0;
  int64_t member = 0, block = 0;
};
void attention_grad(const AttentionShape& shape, const AttentionGradOperands& operands,
                    const AttentionGradPart& part, float* scratch);
int64_t attention_grad_scratch_floats(const AttentionShape& shape);

inline constexpr int64_t kCacheRun = 256;         // Keys of a run.
inline constexpr int64_t kMostCachedQueries = 8;  // Most queries times group(), per key head.

// Decoding: attention of a few queries of one key head over a cache, one run of keys at a time
// (split-K, as in Flash-Decoding: Dao et al., 2023). Runs begin at fixed positions and are combined
// in order, so that results do not depend on the number of threads or on other rows.

// Returns the size of the partial result of a run: for each query the maximum of its scores, the
// sum of exp(score - maximum), and the sum of values with those weights.
int64_t cached_run_floats(const AttentionShape& shape);

// Computes run `run` of key head `kv_head` of row `batch`. `part` has cached_run_floats() floats.
void attend_to_run(const AttentionShape& shape, const AttentionOperands& operands, int64_t batch,
                   int64_t kv_head, int64_t run, float* part);

// Combines the `runs` consecutive partial results of a key head, which are overwritten.
void join_runs(const AttentionShape& shape, const AttentionResults& results, int64_t batch,
               int64_t kv_head, int64_t runs, float* parts);

}  // namespace tessera
