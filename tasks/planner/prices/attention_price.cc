// SPDX-License-Identifier: Apache-2.0
// The time of attention on a GPU: by our own kernels, whose launches are priced by what they do
// (attention_work.h), by cuDNN's, or at the published rates of the fastest kernels. Which one a run
// would use is in the hardware file. docs/planner.md compares the prices with measurements.
#include <algorithm>
#include <cmath>

#include "core/ops/attention.h"
#include "tasks/planner/prices/attention_work.h"
#include "tasks/planner/prices/roofline.h"

namespace tessera {
namespace {

// Published rates of cuDNN and FlashAttention-3 on an H100 (Shah et al., 2024: forward, not causal,
// 395 TFLOP/s with heads of 64 and 617 with heads of 128 at 2048 keys, 373 and 574 at 1024), as
// shares of the peak. Half a mask costs a fifth, and the backward pass runs at three quarters of
// the forward rate: estimates.
constexpr double kShareAt64 = 0.43, kShareAt128 = 0.67;
constexpr double kKeysOfStart = 148.0;
constexpr double kCausalShare = 0.8, kBackwardShare = 0.75;

// The shares of these that cuDNN 9.14 reaches on an H100: its gradients, which have the same bits
// in each run, and scores with a cap; and the part of a gradient's time that other bits in each run
// would save, with rows of 2048 (docs/performance.md, "Measured on one H100").
constexpr double kGradientShare = 0.73, kCappedShare = 0.3, kCappedGradientShare = 0.4;
constexpr double kDeterminismPart = 0.07;
// The parts of their times that own kernels take for packed rows, of which they skip tiles of other
// documents: measured on an H100 with three documents a row, 0.65 to 0.77 and 0.58 to 0.68.
constexpr double kPackedPart = 0.7, kPackedGradientPart = 0.62;

// Per cycle of a multiprocessor.
constexpr double kSharedBytes = 128.0, kExponentials = 16.0, kVectorLanes = 128.0;
constexpr double kCacheBytes = 38.0;   // From L2: 5120 bytes on 132 of them.
constexpr double kInstructions = 4.0;  // A lane's for a score, beside its exponential.
// Cycles of a multiprocessor for a capped score, whose exponential and reciprocal wait for each
// other: fitted to c4.Spmd1B on an H100, whose attention and gradient differ by 6 % then.
constexpr double kCapCycles = 0.85;
// Blocks of a multiprocessor hide each other's waits, the third one half as well as the second; a
// block waits so many cycles at a barrier for its warps and copies; and the last round is half
// empty. The three numbers are fitted: six rates that were measured on an H100 differ by at most
// 4 % (docs/performance.md).
constexpr double kThirdBlock = 0.5;
constexpr double kBarrierCycles = 800.0;
constexpr double kLastRound = 0.5;

bool is_gradient(const Node& node) { return node.op == &kAttentionGradOp; }
bool is_packed(const Node& node) { return node.attributes.get(key::kSegments); }

double published_share(const Graph& graph, const Node& node) {
  const double width = to_double(graph.type(node.inputs[0]).axis("head_dim").size);
  const double keys = to_double(graph.type(node.inputs[1]).axis("key_seq").size);
  const double above = std::clamp((width - 64.0) / 64.0, 0.0, 1.0);
  double share = kShareAt64 * std::min(width / 64.0, 1.0) + (kShareAt128 - kShareAt64) * above;
  share *= keys / (keys + kKeysOfStart);
  if (node.attributes.get(key::kCausal)) share *= kCausalShare;
  return is_gradient(node) ? share * kBackwardShare : share;
}

double cudnn_share(const Graph& graph, const Node& node) {
  double share = published_share(graph, node);
  if (is_gradient(node)) share *= kGradientShare;
  if (node.attributes.get(key::kLogitCap) > 0.0)
    share *= is_gradient(node) ? kCappedGradientShare : kCappedShare;
  return share;
}

double own_seconds(const AttentionWork& work, DType dtype, bool capped, const Hardware& hardware) {
  if (work.multiply_adds == 0) {  // Row sums, which read each operand once.
    const double bytes = to_double(work.global_bytes);
    return bytes / reachable_bandwidth(hardware, bytes);
  }
  const Multiprocessors& gpu = *hardware.multiprocessors;
  const double multiprocessors = to_double(gpu.count);
  const double products = hardware.peak_flops(dtype) / 2.0 / gpu.clock / multiprocessors *
                          (dtype == DType::kBF16 ? gpu.matrix_share : 1.0);
  const double cycles =
      to_double(work.multiply_adds) / products + to_double(work.shared_bytes) / kSharedBytes +
      to_double(work.exponentials) / kExponentials +
      to_double(work.scores) * (kInstructions / kVectorLanes + (capped ? kCapCycles : 0.0)) +
      to_double(work.barriers) * kBarrierCycles;
  // Few blocks leave multiprocessors idle, or alone with one.
  const double blocks = to_double(work.blocks), busy = std::min(blocks, multiprocessors);
  const double resident = std::min(to_double(work.resident_blocks), std::ceil(blocks / busy));
  const double overlap = resident <= 2.0 ? resident : 2.0 + kThirdBlock;
  const double rounds = blocks / (busy * resident);
  // Copies to shared memory are asynchronous.
  const double last = rounds > 1.0 ? 1.0 + kLastRound / rounds : 1.0;
  return std::max(cycles * last / overlap, to_double(work.global_bytes) / kCacheBytes) /
         (busy * gpu.clock);
}

double own_seconds(const AttentionShape& shape, const Node& node, DType dtype,
                   const Hardware& hardware) {
  double seconds = 0.0;
  for (const AttentionWork& work :
       attention_work(shape, is_gradient(node), hardware.multiprocessors->shared_memory_bytes))
    seconds += own_seconds(work, dtype, shape.has_logit_cap, hardware);
  if (is_packed(node)) seconds *= is_gradient(node) ? kPackedGradientPart : kPackedPart;
  // Launches after the first.
  return seconds + (is_gradient(node) ? 2.0 * hardware.launch_overhead : 0.0);
}

// The kernels that the device uses for the node.
AttentionKernels kernels_of(const AttentionShape& shape, const Node& node, DType dtype,
                            const Hardware& hardware) {
  if (!hardware.attention) return AttentionKernels::kPublished;
  const auto [forward, gradient] = *hardware.attention;
  const AttentionKernels kernels = is_gradient(node) ? gradient : forward;
  // cuDNN takes rows of whole units of 16 bytes, and is not used in windows.
  const bool cudnn_has_it = dtype == DType::kBF16 && shape.head_dim % 8 == 0 && !is_packed(node) &&
                            shape.window == 0 && shape.first_query == 0;
  return kernels == AttentionKernels::kCudnn && !cudnn_has_it ? AttentionKernels::kOwn : kernels;
}

}  // namespace

AttentionPrice attention_price(const Graph& graph, const Node& node, double flops,
                               const Hardware& hardware) {
  const DType dtype = graph.type(node.inputs[0]).dtype;
  const AttentionShape shape = attention_shape(graph, node);
  AttentionPrice price{.kernels = kernels_of(shape, node, dtype, hardware)};
  if (price.kernels == AttentionKernels::kOwn) {
    price.seconds = own_seconds(shape, node, dtype, hardware);
    return price;
  }
  const bool by_cudnn = price.kernels == AttentionKernels::kCudnn;
  const double share = by_cudnn ? cudnn_share(graph, node) : published_share(graph, node);
  price.seconds = flops / (hardware.peak_flops(dtype) * share);
  if (by_cudnn && is_gradient(node)) price.determinism = price.seconds * kDeterminismPart;
  return price;
}

}  // namespace tessera
