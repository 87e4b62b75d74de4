// SPDX-License-Identifier: Apache-2.0
// A network and a softmax over classes, one label an example.
#pragma once

#include <memory>

#include "core/hparams/template.h"
#include "layers/base_model.h"
#include "layers/base_softmax.h"
#include "layers/full_softmax.h"
#include "layers/mlp.h"

namespace tessera {

class ClassificationModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = ClassificationModel;
    static constexpr std::string_view kName = "ClassificationModel";
    Template<UnaryLayer> network_tpl = Mlp::HParams{};  // ["batch features"] -> ["batch embed"].
    Template<BaseSoftmax> softmax_tpl = FullSoftmax::HParams{.use_bias = true};
    FIELDS(network_tpl, softmax_tpl)
  };
  explicit ClassificationModel(const HParams& p);

  // Features: inputs f32["batch features"], labels i32["batch"], optionally weights f32["batch"].
  ModelOutput fprop(const Features& features) const override;
  Tensor logits(const Features& features) const override;

 private:
  std::unique_ptr<UnaryLayer> network_;
  std::unique_ptr<BaseSoftmax> softmax_;
};

extern template class HolderOf<BaseModel, ClassificationModel::HParams>;

}  // namespace tessera
