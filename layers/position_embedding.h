// SPDX-License-Identifier: Apache-2.0
// Absolute position embeddings, added to the token embeddings: fixed sinusoids or a learned table.
// Rotary embedding acts inside attention instead (rotary_embedding.h).
#pragma once

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class BasePositionEmbedding : public Layer {
 public:
  // Positions i32["seq"], or ["batch seq"] below the length of seq (of the cache, while decoding);
  // counted from 0 -> the same axes and "embed".
  virtual Tensor fprop(Tensor positions) const = 0;

 protected:
  using Layer::Layer;
};

// sin and cos of position/timescale, timescales in geometric progression; the first half of `embed`
// holds the sines (Vaswani et al., 2017, in the arrangement of Pax and tensor2tensor).
class PositionalEmbedding final : public BasePositionEmbedding {
 public:
  struct HParams {
    using Instance = PositionalEmbedding;
    static constexpr std::string_view kName = "PositionalEmbedding";
    Required<int64_t> model_dims;  // Even.
    double min_timescale = 1.0;
    double max_timescale = 10000.0;
    Field<DTypePolicy> dtypes;
    FIELDS(model_dims, min_timescale, max_timescale, dtypes)
  };
  explicit PositionalEmbedding(const HParams& p);
  Tensor fprop(Tensor positions) const override;

 private:
  Tensor sinusoids(Tensor positions) const;

  HParams p_;
};

class TrainablePositionalEmbedding final : public BasePositionEmbedding {
 public:
  struct HParams {
    using Instance = TrainablePositionalEmbedding;
    static constexpr std::string_view kName = "TrainablePositionalEmbedding";
    Required<int64_t> max_seq_length;
    Required<int64_t> model_dims;
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    LayerRules rules;  // Of its own tensors.
    FIELDS(max_seq_length, model_dims, dtypes, params_init, rules)
  };
  explicit TrainablePositionalEmbedding(const HParams& p);
  Tensor fprop(Tensor positions) const override;

 private:
  HParams p_;
  Weight table_;
};

extern template class HolderOf<BasePositionEmbedding, PositionalEmbedding::HParams>;
extern template class HolderOf<BasePositionEmbedding, TrainablePositionalEmbedding::HParams>;

}  // namespace tessera
