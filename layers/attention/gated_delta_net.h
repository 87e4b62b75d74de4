// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet (Yang et al., 2024, arXiv 2412.06464): linear attention with decay and the delta
// rule, as in Qwen3-Next. Each head keeps a matrix of constant size in place of keys and values.
#pragma once

#include "core/hparams/template.h"
#include "layers/fprop_scope.h"
#include "layers/layer.h"

namespace tessera {

// With q, k and v projections of x, each after a short causal convolution of every channel and
// SiLU, q and k of length 1, and a decay and a step size from x for each head, the output is
// norm(linear_recurrence(q/√key_dim, k, v))·silu(gate), projected. Tokens see those before them in
// their segment. A sequence that is split is gathered; rules of the role "attention" can exchange
// its split for one of the heads.
class GatedDeltaNet final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = GatedDeltaNet;
    Required<int64_t> model_dims;
    Required<int64_t> num_heads;         // Heads of values, each with a state.
    Field<int64_t> num_kv_heads;         // Divides num_heads; num_heads unless set.
    Field<int64_t> dims_per_head;        // Also of queries; model_dims / num_heads unless set.
    Field<int64_t> value_dims_per_head;  // dims_per_head unless set.
    int64_t conv_width = 4;              // Tokens that a convolution reads.
    bool use_delta_rule = true;          // false: gated linear attention.
    double norm_epsilon = 1e-6;
    LayerHParams layer;
    Field<WeightInit> output_init;  // params_init unless set.
    FIELDS(About(model_dims, kSize), About(num_heads, kSize), About(num_kv_heads, kSize),
           About(dims_per_head, kSize), About(value_dims_per_head, kSize), About(conv_width, kSize),
           use_delta_rule, About(norm_epsilon, kNotNegative), layer, output_init)
  };
  explicit GatedDeltaNet(const HParams& p);

 private:
  // The weights of queries, keys or values: a projection and a convolution.
  struct Channel {
    std::string name;
    Weight matrix, kernel;
  };
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;
  Channel channel(std::string_view name, const std::vector<Axis>& axes);
  Tensor convolved(const Tensor& x, const Channel& channel, const Tensor& segment_ids) const;
  Tensor with_history(const Tensor& x, std::string_view name) const;
  Tensor log_decay(const Tensor& x) const;
  Tensor recurred(const Tensor& q, const Tensor& k, const Tensor& v, Tensor log_decay, Tensor beta,
                  const Tensor& segment_ids) const;

  HParams p_;
  int64_t key_dim_ = 0;
  Channel query_, key_, value_;
  Weight gate_, decay_, beta_, log_rate_, decay_bias_, output_;
  ChildLayer<UnaryLayer> norm_;
};

extern template class HolderOf<SequenceLayer, GatedDeltaNet::HParams>;

}  // namespace tessera
