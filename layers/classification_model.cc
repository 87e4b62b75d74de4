// SPDX-License-Identifier: Apache-2.0
#include "layers/classification_model.h"

#include "core/ops/elementwise.h"

namespace tessera {

template class HolderOf<BaseModel, ClassificationModel::HParams>;

namespace {

const TemplateRegistrar<BaseModel, ClassificationModel> kRegisterClassificationModel;

}  // namespace

ClassificationModel::ClassificationModel(const HParams& p) : BaseModel(Field<DTypePolicy>{}) {
  network_ = child("network", p.network_tpl);
  softmax_ = child("softmax", p.softmax_tpl);
}

ModelOutput ClassificationModel::fprop(const Features& features) const {
  const LayerScope scope(*this);
  const Tensor embedded = network_->fprop(features.get("inputs"));
  return weighted_output(softmax_->loss(embedded, features.get("labels")),
                         features.find("weights"));
}

Tensor ClassificationModel::logits(const Features& features) const {
  const LayerScope scope(*this);
  return softmax_->logits(network_->fprop(features.get("inputs")));
}

}  // namespace tessera
