// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN: the graphs of the op and of its gradient, and the kernels that run their
// plans. The library recognises the pattern and runs it as one fused kernel, which holds no scores
// in memory (except in the deterministic gradient, which keeps them in its workspace).
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plugins/cuda/attention/cudnn_graph.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {

// An attention node, or its gradient, on bf16.
struct CudnnAttention {
  int64_t batch, queries, keys, heads, kv_heads, head_dim;
  bool causal, gradient;
  bool deterministic;  // For the gradient: the same bits in every run.
  float scale, logit_cap;
  auto operator<=>(const CudnnAttention&) const = default;
};

// Describes a node of a lowered graph. nullopt if cuDNN cannot compute it: operands are not bf16,
// or rows of a head are not whole 16-byte units; and for packed rows, of which our own kernels skip
// the tiles of other documents.
std::optional<CudnnAttention> cudnn_attention(const Graph& graph, const Node& node,
                                              bool deterministic);

// Operands are the node's inputs, then its outputs. nullopt if the library does not support it.
std::optional<CudnnPlan> plan_attention(const Cudnn& library, const CudnnTarget& target,
                                        const CudnnAttention& attention);

// Why this GPU cannot use cuDNN; empty if it can.
std::string cudnn_why_not(Context& context);
std::string cudnn_version(Context& context);  // "9.19.0", where it can.

// The node by cuDNN, and by `own` for operands that are not aligned to 16 bytes; null where cuDNN
// does not support the node. Plans are made once for each shape.
std::unique_ptr<CudaKernel> make_cudnn_attention(const Graph& graph, const Node& node,
                                                 Context& context, std::unique_ptr<CudaKernel> own);

}  // namespace tessera::cuda
