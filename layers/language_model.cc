// SPDX-License-Identifier: Apache-2.0
#include "layers/language_model.h"

namespace tessera {

template class HolderOf<BaseModel, LanguageModel::HParams>;

namespace {

const TemplateRegistrar<BaseModel, LanguageModel> kRegisterLanguageModel;

}  // namespace

LanguageModel::LanguageModel(const HParams& p) : BaseModel(Field<DTypePolicy>{}) {
  lm_ = child("lm", p.lm_tpl);
}

ModelOutput LanguageModel::fprop(const Features& features) const {
  const LayerScope scope(*this);
  return weighted_output(lm_->loss(features), features.find("weights"));
}

Tensor LanguageModel::logits(const Features& features) const {
  const LayerScope scope(*this);
  return lm_->logits(features);
}

Tensor LanguageModel::next_logits(const Features& features) const {
  const LayerScope scope(*this);
  return lm_->next_logits(features);
}

}  // namespace tessera
