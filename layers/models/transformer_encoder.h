// SPDX-License-Identifier: Apache-2.0
// The encoder of an encoder-decoder model (Vaswani et al., 2017): a stack of blocks over a sequence
// of its own, whose output the blocks of the decoder attend to (DotProductAttention with `cross`).
#pragma once

#include "core/hparams/template.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/models/transformer.h"

namespace tessera {

// What the encoder reads: embedded tokens x["batch seq embed"], and the structure of the batch.
// Returns the decoder's view of the result, with `encoded` set.
class TransformerEncoder final
    : public LayerOf<SequenceInfo(Tensor x, const SequenceInfo& sequence)> {
 public:
  struct HParams {
    using Instance = TransformerEncoder;
    Required<int64_t> num_layers;
    Template<BasePositionEmbedding> position_emb_tpl;  // Unset: no absolute positions.
    Template<SequenceLayer> stacked_transformer_tpl = StackedTransformer::HParams{};
    Template<UnaryLayer> final_ln_tpl = LayerNorm::HParams{};  // Unset: no final norm.
    double dropout_rate = 0.0;                                 // Applies to its input and output.
    int64_t decoder_start_id = 0;  // The token that the decoder reads first while decoding.
    FIELDS(About(num_layers, kLayerCount), position_emb_tpl, stacked_transformer_tpl, final_ln_tpl,
           About(dropout_rate, kRate), About(decoder_start_id, {.min = 0, .max = INT32_MAX}))
  };
  explicit TransformerEncoder(const HParams& p);

 private:
  SequenceInfo fprop(Tensor x, const SequenceInfo& sequence) const override;

  ChildLayer<BasePositionEmbedding> position_emb_;
  ChildLayer<SequenceLayer> transformer_;
  ChildLayer<UnaryLayer> final_ln_, dropout_, output_dropout_;
};

extern template class HolderOf<TransformerEncoder, TransformerEncoder::HParams>;

}  // namespace tessera
