// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient: blocks of queries of all heads are shared out among threads;
// backward, key heads are, since all that read a key head add to its gradient. Where there are
// fewer of them than threads, blocks of keys are, and then blocks of queries.
#include "core/ops/attention.h"

#include "core/backend/cpu/attention/attention_kernels.h"
#include "core/backend/cpu/composite_kernel.h"

namespace tessera {
namespace {

AttentionShape shape_of(const Graph& graph, const Node& node) {
  const Type& q = graph.type(node.inputs[0]);
  const Type& k = graph.type(node.inputs[1]);
  return {.dtype = vector_dtype(graph, node, 0),
          .batch = q.axes[0].size,
          .queries = q.axes[1].size,
          .keys = k.axes[1].size,
          .heads = q.axes[2].size,
          .kv_heads = k.axes[2].size,
          .head_dim = q.axes[3].size,
          .causal = flag_attribute(node, "causal"),
          .scale = float_attribute(node, "scale"),
          .cap = float_attribute(node, "logit_cap"),
          .pairs = attention_in_pairs(vector_dtype(graph, node, 0), q.axes[3].size)};
}

AttentionOperands operands_of(const HostArgs& args, bool segments) {
  return {.q = args.inputs[0],
          .k = args.inputs[1],
          .v = args.inputs[2],
          .segments = segments ? input_as<int32_t>(args, 3) : nullptr,
          .key_segments = segments ? input_as<int32_t>(args, 4) : nullptr};
}

// 0, last, 1, last but one, …: halves of a causal head then cost the same.
int64_t interleaved(int64_t i, int64_t count) { return i % 2 == 0 ? i / 2 : count - 1 - i / 2; }

class AttentionKernel final : public HostKernel {
 public:
  AttentionKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : shape_(shape_of(graph, node)),
        segments_(flag_attribute(node, "segments")),
        thread_floats_(padded_floats(attention_scratch_floats(shape_))),
        team_(team) {}

  int64_t scratch_bytes() const override {
    return team_.size() * thread_floats_ * static_cast<int64_t>(sizeof(float));
  }

  void run(const HostArgs& args) override {
    const AttentionOperands operands = operands_of(args, segments_);
    const AttentionResults results{args.outputs[0], output_as<float>(args, 1)};
    const int64_t blocks = shape_.query_blocks();
    team_.parallel(shape_.batch * shape_.heads * blocks, 1, [&](Range range, int thread) {
      float* scratch = reinterpret_cast<float*>(args.scratch) + thread * thread_floats_;
      for (int64_t item = range.begin; item < range.end; ++item) {
        const int64_t head = item / blocks;
        attention_block(shape_, operands, results, head / shape_.heads, head % shape_.heads,
                        interleaved(item % blocks, blocks), scratch);
      }
    });
  }

 private:
  AttentionShape shape_;
  bool segments_;
  int64_t thread_floats_;
  ThreadTeam& team_;
};

class AttentionGradKernel final : public HostKernel {
 public:
  AttentionGradKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : shape_(shape_of(graph, node)),
        segments_(flag_attribute(node, "segments")),
        thread_floats_(padded_floats(attention_grad_scratch_floats(shape_))),
        team_(team) {}

  int64_t scratch_bytes() const override {
    return team_.size() * thread_floats_ * static_cast<int64_t>(sizeof(float));
  }

  void run(const HostArgs& args) override {
    const size_t forward = segments_ ? 5 : 3;
    const AttentionGradOperands operands{.forward = operands_of(args, segments_),
                                         .out = args.inputs[forward],
                                         .lse = input_as<float>(args, forward + 1),
                                         .cotangent = args.inputs[forward + 2],
                                         .dq = args.outputs[0],
                                         .dk = args.outputs[1],
                                         .dv = args.outputs[2]};
    using Kind = AttentionGradPart::Kind;
    const int64_t heads = shape_.batch * shape_.kv_heads;
    if (heads >= team_.size()) {
      share_out(args, operands, Kind::kHead, heads, 1, 1);
    } else {
      share_out(args, operands, Kind::kKeys, heads, 1, shape_.key_blocks());
      share_out(args, operands, Kind::kQueries, heads, shape_.group(), shape_.query_blocks());
    }
  }

 private:
  void share_out(const HostArgs& args, const AttentionGradOperands& operands,
                 AttentionGradPart::Kind kind, int64_t heads, int64_t members, int64_t blocks) {
    team_.parallel(heads * members * blocks, 1, [&](Range range, int thread) {
      float* scratch = reinterpret_cast<float*>(args.scratch) + thread * thread_floats_;
      for (int64_t item = range.begin; item < range.end; ++item) {
        const int64_t member = item / blocks, head = member / members;
        attention_grad(shape_, operands,
                       {.kind = kind,
                        .batch = head / shape_.kv_heads,
                        .kv_head = head % shape_.kv_heads,
                        .member = member % members,
                        .block = interleaved(item % blocks, blocks)},
                       scratch);
      }
    });
  }

  AttentionShape shape_;
  bool segments_;
  int64_t thread_floats_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterAttentionKernel{kAttentionOp, make_kernel<AttentionKernel>};
const KernelRegistrar kRegisterAttentionGrad{kAttentionGradOp, make_kernel<AttentionGradKernel>};

}  // namespace
}  // namespace tessera
