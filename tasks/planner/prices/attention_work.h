// SPDX-License-Identifier: Apache-2.0
// What our own attention kernels of GPUs (plugins/cuda/attention) do for a node: bytes, products,
// exponentials and barriers of each launch, from the sizes of their tiles. Tests compare the counts
// with those of the virtual GPU, which runs the kernels. Nothing here needs a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// q, out and their gradients["batch queries heads head_dim"]; k, v["batch keys kv_heads head_dim"].
// Rows are whole units of 16 bytes, and all positions are of one segment.
struct AttentionShape {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t element_bytes = 2;  // 2: bf16, 4: f32.
  bool causal = false, has_logit_cap = false;
  int64_t window = 0, first_query = 0;  // A window of 0: none.
};
// Reads the shape of an attention node or its gradient.
AttentionShape attention_shape(const Graph& graph, const Node& node);

// One launch. Bytes are read and written ones together, as often as they are; a copy from global to
// shared memory counts in both.
struct AttentionWork {
  std::string kernel;  // "attention_grad_keys_bf16_64".
  int64_t blocks = 0;
  int64_t resident_blocks = 0;  // Per multiprocessor, limited by registers and shared memory.
  int64_t global_bytes = 0, shared_bytes = 0;
  int64_t multiply_adds = 0;  // In products, with hidden elements of a tile; 0: row sums alone.
  int64_t scores = 0;         // Elements of products q·k.
  int64_t exponentials = 0;   // With reciprocals: a capped score takes two and one.
  int64_t barriers = 0;       // All blocks together.
};

// The launches of the forward pass, or of the gradient. `shared_capacity`: bytes of a
// multiprocessor. No launch for heads that the kernels do not have.
std::vector<AttentionWork> attention_work(const AttentionShape& shape, bool gradient,
                                          int64_t shared_capacity);

}  // namespace tessera
