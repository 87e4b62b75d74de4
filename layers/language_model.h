// SPDX-License-Identifier: Apache-2.0
// The model of next-token prediction: a TransformerLm, its loss over weighted tokens, and metrics.
#pragma once

#include <memory>

#include "core/hparams/template.h"
#include "layers/base_model.h"
#include "layers/transformer_lm.h"

namespace tessera {

class LanguageModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = LanguageModel;
    static constexpr std::string_view kName = "LanguageModel";
    Template<TransformerLm> lm_tpl = TransformerLm::HParams{};
    FIELDS(lm_tpl)
  };
  explicit LanguageModel(const HParams& p);

  // Features: ids, labels, weights (f32; absent: 1 everywhere); segment_ids and segment_pos of
  // packed batches. Metrics: log_pplx (nats per token, without smoothing and z-loss), accuracy.
  ModelOutput fprop(const Features& features) const override;
  Tensor logits(const Features& features) const override;
  Tensor next_logits(const Features& features) const override;

 private:
  std::unique_ptr<TransformerLm> lm_;
};

extern template class HolderOf<BaseModel, LanguageModel::HParams>;

}  // namespace tessera
