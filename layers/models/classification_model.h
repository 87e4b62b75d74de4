// SPDX-License-Identifier: Apache-2.0
// A network and a softmax over classes; each example has one label.
#pragma once

#include "core/hparams/template.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/base_model.h"

namespace tessera {

// Features: inputs f32["batch features"], labels i32["batch"], optionally weights f32["batch"].
class ClassificationModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = ClassificationModel;
    Template<UnaryLayer> network_tpl = Mlp::HParams{};  // ["batch features"] -> ["batch embed"].
    Template<BaseSoftmax> softmax_tpl = FullSoftmax::HParams{.use_bias = true};
    FIELDS(network_tpl, softmax_tpl)
  };
  explicit ClassificationModel(const HParams& p);

 private:
  ModelOutput fprop(const Features& features) const override;
  Tensor fprop_logits(const Features& features) const override;

  ChildLayer<UnaryLayer> network_;
  ChildLayer<BaseSoftmax> softmax_;
};

extern template class HolderOf<BaseModel, ClassificationModel::HParams>;

}  // namespace tessera
