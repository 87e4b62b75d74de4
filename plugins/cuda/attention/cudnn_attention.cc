// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/cudnn_attention.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/memory/step_program.h"
#include "core/ops/attention.h"

namespace tessera::cuda {
namespace {

// A hidden score: finite, so that a tile of keys that a query may not see does not make NaNs; its
// probability is exactly 0 beside any score of a visible key.
constexpr float kHidden = -1e30f;
constexpr int kOldestCapability = 90;
// From Blackwell on, a deterministic gradient needs another choice of kernel than the library's
// first.
constexpr int kFirstBlackwell = 100;
constexpr int64_t kElementsPerUnit = 8;  // bf16 of 16 bytes.

constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
constexpr auto kF32 = CUDNN_DATA_FLOAT;

class AttentionGraph {
 public:
  AttentionGraph(const Cudnn& library, const CudnnAttention& attention)
      : attention_(attention), graph_(library) {}

  CudnnGraph& forward() {
    const CudnnTensor query = queries(), key = transposed_keys(), value = keys();
    const CudnnTensor out = queries(), lse = statistics();
    const CudnnTensor visible = masked(capped(scores(query, key)));
    const CudnnTensor maximum = row_result(CUDNN_REDUCE_TENSOR_MAX, visible);
    const CudnnTensor weights = graph_.pointwise(
        CUDNN_POINTWISE_EXP, graph_.pointwise(CUDNN_POINTWISE_SUB, visible, maximum));
    const CudnnTensor sum = row_result(CUDNN_REDUCE_TENSOR_ADD, weights);
    graph_.pointwise_into(lse, CUDNN_POINTWISE_ADD, maximum,
                          graph_.pointwise(CUDNN_POINTWISE_LOG, sum));
    const CudnnTensor probabilities = graph_.intermediate(kBf16, score_sizes());
    graph_.pointwise_into(probabilities, CUDNN_POINTWISE_DIV, weights, sum);
    graph_.product(probabilities, value, out);
    return graph_;
  }

  CudnnGraph& gradient() {
    const CudnnTensor query = queries(), key = transposed_keys(), value = transposed_keys();
    const CudnnTensor out = queries(), lse = statistics(), cotangent = queries();
    const CudnnTensor dquery = queries(), dkey = keys(), dvalue = keys();
    const CudnnTensor delta = row_sums(cotangent, out);
    const CudnnTensor shifted =
        graph_.pointwise(CUDNN_POINTWISE_SUB, capped(scores(query, key)), lse);
    const CudnnTensor probabilities = graph_.pointwise(CUDNN_POINTWISE_EXP, masked(shifted));
    add_key_gradient(probabilities, cotangent, dvalue);

    CudnnTensor dscores = graph_.intermediate(kF32, score_sizes());
    graph_.product(cotangent, value, dscores);
    dscores = graph_.pointwise(CUDNN_POINTWISE_SUB, dscores, delta);
    dscores = graph_.pointwise(CUDNN_POINTWISE_MUL, dscores, probabilities);
    dscores = graph_.pointwise(CUDNN_POINTWISE_MUL, uncapped(dscores), scale_);
    add_key_gradient(dscores, query, dkey);
    add_query_gradient(dscores, graph_.transposed(key, kBf16), dquery);
    return graph_;
  }

 private:
  CudnnExtents query_sizes() const {
    return {attention_.batch, attention_.heads, attention_.queries, attention_.head_dim};
  }
  CudnnExtents score_sizes() const {
    return {attention_.batch, attention_.heads, attention_.queries, attention_.keys};
  }
  CudnnExtents row_sizes() const {
    return {attention_.batch, attention_.heads, attention_.queries, 1};
  }

  // ["batch rows heads head_dim"] in memory; cuDNN's axes are batch, heads, rows, head_dim.
  CudnnTensor rows_operand(int64_t rows, int64_t heads) {
    return graph_.operand(
        kBf16, {attention_.batch, heads, rows, attention_.head_dim},
        {rows * heads * attention_.head_dim, attention_.head_dim, heads * attention_.head_dim, 1});
  }
  CudnnTensor queries() { return rows_operand(attention_.queries, attention_.heads); }
  CudnnTensor keys() { return rows_operand(attention_.keys, attention_.kv_heads); }
  CudnnTensor transposed_keys() {
    return graph_.operand(
        kBf16, {attention_.batch, attention_.kv_heads, attention_.head_dim, attention_.keys},
        {attention_.keys * attention_.kv_heads * attention_.head_dim, attention_.head_dim, 1,
         attention_.kv_heads * attention_.head_dim});
  }
  CudnnTensor statistics() {
    return graph_.operand(kF32, row_sizes(), packed_strides(row_sizes()));
  }

  CudnnTensor scores(const CudnnTensor& query, const CudnnTensor& key) {
    const CudnnTensor products = graph_.intermediate(kF32, score_sizes());
    graph_.product(query, key, products);
    scale_ = graph_.scalar(attention_.scale);
    return graph_.pointwise(CUDNN_POINTWISE_MUL, products, scale_);
  }
  CudnnTensor capped(const CudnnTensor& scores) {
    if (attention_.logit_cap == 0.0f) return scores;
    const CudnnTensor cap = graph_.scalar(attention_.logit_cap);
    tanh_ = graph_.pointwise(CUDNN_POINTWISE_TANH_FWD,
                             graph_.pointwise(CUDNN_POINTWISE_DIV, scores, cap));
    return graph_.pointwise(CUDNN_POINTWISE_MUL, tanh_, cap);
  }
  // Times 1 - tanh². cuDNN takes a scalar as a second operand only, hence dscores - dscores·tanh².
  CudnnTensor uncapped(const CudnnTensor& dscores) {
    if (attention_.logit_cap == 0.0f) return dscores;
    const CudnnTensor square = graph_.pointwise(CUDNN_POINTWISE_MUL, tanh_, tanh_);
    return graph_.pointwise(CUDNN_POINTWISE_SUB, dscores,
                            graph_.pointwise(CUDNN_POINTWISE_MUL, square, dscores));
  }
  CudnnTensor masked(const CudnnTensor& scores) {
    if (!attention_.causal) return scores;
    const CudnnTensor hidden = graph_.scalar(kHidden), row = graph_.positions(scores, 2);
    const CudnnTensor visible =
        graph_.compare(CUDNN_POINTWISE_CMP_GE, row, graph_.positions(scores, 3));
    return graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, hidden, visible);
  }
  CudnnTensor row_result(cudnnReduceTensorOp_t reduction, const CudnnTensor& scores) {
    const CudnnTensor result = graph_.intermediate(kF32, row_sizes());
    graph_.reduce(reduction, scores, result);
    return result;
  }

  // Sums of cotangent·out over head_dim. The library expects the product with a scalar: the
  // reciprocal of what dropout keeps, which is 1 here.
  CudnnTensor row_sums(const CudnnTensor& cotangent, const CudnnTensor& out) {
    const CudnnTensor sums =
        row_result(CUDNN_REDUCE_TENSOR_ADD, graph_.pointwise(CUDNN_POINTWISE_MUL, cotangent, out));
    const CudnnTensor delta = graph_.scratch(kF32, row_sizes());
    graph_.pointwise_into(delta, CUDNN_POINTWISE_MUL, sums, graph_.scalar(1.0f));
    return delta;
  }
  // result = sum over queries, and over the heads that share a key head, of scores·rows.
  void add_key_gradient(const CudnnTensor& scores, const CudnnTensor& rows,
                        const CudnnTensor& result) {
    const CudnnTensor turned = graph_.transposed(scores, kBf16);
    if (attention_.heads == attention_.kv_heads) return graph_.product(turned, rows, result);
    const CudnnTensor of_heads = graph_.intermediate(
        kBf16, {attention_.batch, attention_.heads, attention_.keys, attention_.head_dim});
    graph_.product(turned, rows, of_heads);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, result);
  }
  // Blocks of keys add to the same rows. Through an f32 tensor the library adds by atomics, in any
  // order; written directly, it keeps dscores in its workspace and multiplies them afterwards.
  void add_query_gradient(const CudnnTensor& dscores, const CudnnTensor& key,
                          const CudnnTensor& result) {
    if (attention_.deterministic) return graph_.product(dscores, key, result);
    const CudnnTensor sums = graph_.scratch(kF32, query_sizes());
    graph_.product(dscores, key, sums);
    graph_.pointwise_into(result, CUDNN_POINTWISE_IDENTITY, sums);
  }

  const CudnnAttention& attention_;
  CudnnGraph graph_;
  CudnnTensor scale_, tanh_;
};

// Plans of a GPU: a part of its context. Null: not supported.
class CudnnPlans {
 public:
  explicit CudnnPlans(Context& context) : handle_(context.part<CudnnHandle>()) {}

  const CudnnPlan* find(const CudnnAttention& attention) {
    const std::lock_guard lock(mutex_);
    const auto [each, is_new] = plans_.try_emplace(attention);
    if (is_new)
      if (auto plan = plan_attention(*handle_.library(), {.handle = handle_.get()}, attention))
        each->second = std::make_unique<CudnnPlan>(std::move(*plan));
    return each->second.get();
  }
  void run(const CudnnPlan& plan, CUstream stream, const std::vector<CUdeviceptr>& operands,
           CUdeviceptr scratch) {
    const std::lock_guard lock(mutex_);  // The stream is the handle's state.
    const Cudnn& library = *handle_.library();
    library.check(library.cudnnSetStream(handle_.get(), stream), "choosing a stream for cuDNN");
    plan.run(handle_.get(), operands, scratch);
  }

 private:
  CudnnHandle& handle_;
  std::mutex mutex_;
  std::map<CudnnAttention, std::unique_ptr<CudnnPlan>> plans_;
};

class CudnnAttentionKernel final : public CudaKernel {
 public:
  CudnnAttentionKernel(CudnnPlans& plans, const CudnnPlan& plan, std::unique_ptr<CudaKernel> own)
      : plans_(plans), plan_(plan), own_(std::move(own)) {}

  std::string_view implementation() const override { return kCudnnName; }
  int64_t scratch_bytes() const override {
    return std::max(plan_.scratch_bytes() + CudnnPlan::kAlignment - kAlignment,
                    own_->scratch_bytes());
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    std::vector<CUdeviceptr> operands;
    CUdeviceptr all = 0;
    for (const auto& addresses : {args.inputs, args.outputs})
      for (const DeviceAddress address : addresses)
        all |= operands.emplace_back(pointer_of(address));
    if (all % 16 != 0) return own_->enqueue(stream, args);  // Views may begin anywhere.
    constexpr auto kUnit = static_cast<CUdeviceptr>(CudnnPlan::kAlignment);
    const CUdeviceptr scratch = (pointer_of(args.scratch) + kUnit - 1) / kUnit * kUnit;
    plans_.run(plan_, stream, operands, scratch);
  }

 private:
  CudnnPlans& plans_;
  const CudnnPlan& plan_;
  std::unique_ptr<CudaKernel> own_;
};

}  // namespace

std::optional<CudnnAttention> cudnn_attention(const Graph& graph, const Node& node,
                                              bool deterministic) {
  const Type& q = graph.type(node.inputs[0]);
  const Type& k = graph.type(node.inputs[1]);
  const bool gradient = node.op == &kAttentionGradOp;
  const Attributes& attributes = node.attributes;
  if (attributes.get(key::kSegments)) return std::nullopt;  // Our own kernels are faster.
  const CudnnAttention attention = {
      .batch = q.axes[0].size,
      .queries = q.axes[1].size,
      .keys = k.axes[1].size,
      .heads = q.axes[2].size,
      .kv_heads = k.axes[2].size,
      .head_dim = q.axes[3].size,
      .causal = attributes.get(key::kCausal),
      .gradient = gradient,
      .deterministic = deterministic || !gradient,
      .scale = static_cast<float>(attributes.get(key::kScale)),
      .logit_cap = static_cast<float>(attributes.get(key::kLogitCap))};
  if (q.dtype != DType::kBF16 || attention.head_dim % kElementsPerUnit != 0) return std::nullopt;
  if (q.elements() == 0 || k.elements() == 0) return std::nullopt;
  return attention;
}

std::optional<CudnnPlan> plan_attention(const Cudnn& library, const CudnnTarget& target,
                                        const CudnnAttention& attention) {
  AttentionGraph graph(library, attention);
  const auto bits = attention.deterministic ? CudnnGraph::Bits::kSame : CudnnGraph::Bits::kAny;
  return (attention.gradient ? graph.gradient() : graph.forward()).plan(target, bits);
}

std::string cudnn_why_not(Context& context) {
  const auto& handle = context.part<CudnnHandle>();
  if (handle.library() == nullptr) return handle.why_not();
  const int capability = context.compute_capability();
  if (capability >= kOldestCapability) return "";
  return fmt::format("{} has compute capability {}.{}, and cuDNN is used from 9.0 on",
                     context.name(), capability / 10, capability % 10);
}

std::string cudnn_version(Context& context) {
  return context.part<CudnnHandle>().library()->version();
}

std::unique_ptr<CudaKernel> make_cudnn_attention(const Graph& graph, const Node& node,
                                                 Context& context,
                                                 std::unique_ptr<CudaKernel> own) {
  const bool deterministic = context.is_deterministic();
  const auto attention = cudnn_attention(graph, node, deterministic);
  if (!attention) return nullptr;
  const bool is_blackwell = context.compute_capability() >= kFirstBlackwell;
  if (attention->gradient && deterministic && is_blackwell) return nullptr;
  context.make_current();
  auto& plans = context.part<CudnnPlans>();
  const CudnnPlan* const plan = plans.find(*attention);
  if (plan == nullptr) return nullptr;
  return std::make_unique<CudnnAttentionKernel>(plans, *plan, std::move(own));
}

}  // namespace tessera::cuda
