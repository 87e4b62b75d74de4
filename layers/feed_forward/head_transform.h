// SPDX-License-Identifier: Apache-2.0
// HeadTransform: a linear map, an activation and a norm between the last block and the softmax, as
// in masked language models (BERT; Devlin et al., 2019).
#pragma once

#include "core/hparams/template.h"
#include "layers/feed_forward/activations.h"
#include "layers/layer.h"
#include "layers/norms/norms.h"

namespace tessera {

// x["… embed"] -> ["… embed"], laid out as the residual. The outputs of the linear map are on the
// axis mlp, and split like it.
class HeadTransform final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = HeadTransform;
    Required<int64_t> model_dims;
    Template<Activation> activation_tpl = GELU::HParams{.approximate = false};
    Template<UnaryLayer> norm_tpl = LayerNorm::HParams{};
    bool use_bias = true;
    LayerHParams layer;
    FIELDS(About(model_dims, kSize), activation_tpl, norm_tpl, use_bias, layer)
  };
  explicit HeadTransform(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  Weight w_, bias_;
  ChildLayer<Activation> activation_;
  ChildLayer<UnaryLayer> norm_;
};

extern template class HolderOf<UnaryLayer, HeadTransform::HParams>;

}  // namespace tessera
