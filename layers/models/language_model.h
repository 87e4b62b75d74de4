// SPDX-License-Identifier: Apache-2.0
// LanguageModel: a TransformerLm that predicts next tokens, or masked ones, with the loss over
// weighted tokens and metrics; and maybe a teacher from which it learns.
#pragma once

#include "core/hparams/template.h"
#include "layers/models/base_model.h"
#include "layers/models/transformer_lm.h"

namespace tessera {

// Features: ids, labels, weights (f32; absent: all 1); segment_ids and segment_pos of packed
// batches; token_type_ids (absent: all 0); with an encoder encoder_ids ["batch
// encoder_seq"], and encoder_segment_ids and encoder_segment_pos as for the decoder. Metrics:
// log_pplx (nats per token, without smoothing and z-loss), accuracy.
//
// With a teacher of the same vocabulary, weights "teacher.…", the loss of a token in training is
// (1 - w)·loss + w·T²·KL(teacher ‖ model), both at temperature T, with the metric
// teacher_divergence, the KL (Hinton et al., 2015, §2). The teacher is not trained, and nothing but
// training computes it.
class LanguageModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = LanguageModel;
    Template<TransformerLm> lm_tpl = TransformerLm::HParams{};
    Template<TransformerLm> teacher_tpl;  // Unset: none.
    double teacher_weight = 0.5;
    double teacher_temperature = 1.0;
    FIELDS(lm_tpl, teacher_tpl, About(teacher_weight, kShare),
           About(teacher_temperature, "divides the logits of both", kPositive))
  };
  explicit LanguageModel(const HParams& p);
  std::optional<int32_t> decoder_start_id() const override { return lm_->decoder_start_id(); }
  bool draws_labels() const override { return true; }

 private:
  ModelOutput fprop(const Features& features) const override;
  Tensor fprop_logits(const Features& features) const override;
  Tensor fprop_next_logits(const Features& features) const override;
  ModelOutput taught(const Features& features) const;

  ChildLayer<TransformerLm> lm_, teacher_;
  double teacher_weight_, temperature_;
};

extern template class HolderOf<BaseModel, LanguageModel::HParams>;

}  // namespace tessera
