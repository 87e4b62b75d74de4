// SPDX-License-Identifier: Apache-2.0
#include "layers/models/classification_model.h"

namespace tessera {

REGISTER_TEMPLATE(BaseModel, ClassificationModel);

ClassificationModel::ClassificationModel(const HParams& p)
    : network_(child("network", p.network_tpl)), softmax_(child("softmax", p.softmax_tpl)) {}

ModelOutput ClassificationModel::fprop(const Features& features) const {
  const Tensor embedded = network_(features.get("inputs"));
  return weighted_output(softmax_->loss(embedded, features.get("labels")),
                         features.find("weights"));
}

Tensor ClassificationModel::fprop_logits(const Features& features) const {
  return softmax_->logits(network_(features.get("inputs")));
}

}  // namespace tessera
