// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (MLA; DeepSeek-V2, Liu et al., 2024, arXiv 2405.04434, section 2.1).
// Keys and values of all heads are computed from one narrow vector of each token, the latent.
// Positions enter by further dimensions of queries and keys, the rotary part, whose keys all heads
// share. In decoding a cache holds the latent and the rotary key: kv_lora_rank + rope_dims numbers
// a token, whatever the number of heads. Each call expands it to the keys and values of all cached
// tokens; the paper's optimization, key projections multiplied into the queries, is not used.
//
// The fused attention op needs values as wide as keys: narrower values are padded with zeros, which
// changes no number but takes the memory and the time of the wider ones. The FLOPs of attention, as
// counted for plans and MFU, are also those of the wider values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/template.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/fprop_scope.h"
#include "layers/layer.h"

namespace tessera {

// The source of the projections to the rotary parts of keys and queries.
enum class RotarySource {
  kInput,    // Keys from x; queries from the source of their other part (DeepSeek).
  kLatents,  // Both from the two latents, concatenated (JAXformer); needs q_lora_rank.
};
// x["batch seq embed"] -> the same axes, laid out as the residual. Heads are split by rules for
// `heads` and `kv_heads`, as those of DotProductAttention; the latents have the axes `kv_latent`
// and `q_latent` (kLatents: concatenated, `latent`), which are whole unless a rule names them.
// Needs sequence.positions if rope_dims > 0.
class LatentAttention final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = LatentAttention;
    Required<int64_t> model_dims;
    Required<int64_t> num_heads;
    Required<int64_t> kv_lora_rank;  // Width of the latent of keys and values.
    Field<int64_t> q_lora_rank;      // Width of the latent of queries; unset: projected from x.
    Field<int64_t> dims_per_head;    // Without the rotary part; model_dims / num_heads unless set.
    Field<int64_t> value_dims_per_head;  // dims_per_head unless set.
    int64_t rope_dims = 64;  // Dimensions of each head, added to dims_per_head; even. 0: none.
    RotarySource rope_source = RotarySource::kInput;
    Template<RotaryPositionEmbedding> rotary_tpl =
        RotaryPositionEmbedding::HParams{.interleaved = true};
    bool normalize_latents = true;  // RmsNorm of both latents.
    double norm_epsilon = 1e-6;
    bool causal = true;
    bool use_bias = false;      // Adds a bias to every projection.
    Field<double> query_scale;  // Multiplies q·k; 1/√(dims_per_head + rope_dims) unless set.
    LayerHParams layer;
    Field<WeightInit> output_init;  // params_init unless set.
    FIELDS(About(model_dims, kSize), About(num_heads, kSize), About(kv_lora_rank, kSize),
           About(q_lora_rank, kSize), About(dims_per_head, kSize),
           About(value_dims_per_head, kSize), About(rope_dims, kNotNegative), rope_source,
           rotary_tpl, normalize_latents, About(norm_epsilon, kNotNegative), causal, use_bias,
           query_scale, layer, output_init)
  };
  explicit LatentAttention(const HParams& p);

 private:
  struct Projection {
    Weight matrix, bias;
    std::string from;  // The axis that it contracts.
  };
  struct Heads {
    Tensor key, value;  // ["batch seq kv_heads head_dim"]
  };
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override;
  Projection projection(std::string_view name, const Axis& from, std::vector<Axis> to);
  Template<UnaryLayer> norm_of(const Axis& latent) const;
  void declare_queries(const Axis& embed);
  void declare_keys(const Axis& embed);
  Tensor project(const Tensor& x, const Projection& by, std::string_view name) const;
  // The rotary parts of queries and keys, ["batch seq heads head_dim"] and ["batch seq head_dim"].
  struct Rotary {
    Tensor query, key;
  };
  Rotary rotary_parts(const Tensor& x, const Tensor& kv_latent, const Tensor& query_input,
                      const SequenceInfo& sequence) const;
  Heads expanded(const Tensor& kv_latent, const Tensor& rotary_key) const;
  Tensor attend(const Tensor& query, const Heads& heads, const SequenceInfo& sequence) const;
  Tensor attend_to_cache(const Tensor& query, const Tensor& kv_latent, const Tensor& rotary_key,
                         DecodeCache& cache) const;

  HParams p_;
  int64_t head_dim_ = 0, value_dim_ = 0;
  double scale_ = 1.0;
  Projection kv_down_, q_down_, query_, key_, value_, query_rope_, key_rope_;
  Weight output_, output_bias_;
  ChildLayer<UnaryLayer> kv_norm_, q_norm_;
  ChildLayer<RotaryPositionEmbedding> rotary_;
};

extern template class HolderOf<SequenceLayer, LatentAttention::HParams>;

}  // namespace tessera
