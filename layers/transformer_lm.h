// SPDX-License-Identifier: Apache-2.0
// A decoder-only language model: embeddings, a stack of blocks, a final norm and a softmax. Sizes
// set here flow down to every layer that leaves its own unset.
#pragma once

#include <memory>

#include "core/hparams/template.h"
#include "layers/base_softmax.h"
#include "layers/dropout.h"
#include "layers/embedding.h"
#include "layers/features.h"
#include "layers/layer_norm.h"
#include "layers/position_embedding.h"
#include "layers/sequence_layer.h"
#include "layers/shared_embedding_softmax.h"
#include "layers/stacked_transformer.h"

namespace tessera {

class TransformerLm final : public Layer {
 public:
  struct HParams {
    using Instance = TransformerLm;
    static constexpr std::string_view kName = "TransformerLm";
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    Required<int64_t> num_layers;
    Required<int64_t> num_heads;
    Required<int64_t> hidden_dims;
    // Packed batches: attend within segments only, and count positions from each segment's start.
    bool packed_input = true;
    bool segment_positions = true;  // false: positions run on through the row (seqax).
    Template<BasePositionEmbedding> position_emb_tpl;  // Unset: none.
    Template<Embedding> separate_embedding_tpl;        // Unset: the softmax's table.
    Template<BaseSoftmax> softmax_tpl = SharedEmbeddingSoftmax::HParams{};
    Template<SequenceLayer> stacked_transformer_tpl = StackedTransformer::HParams{};
    Template<UnaryLayer> final_ln_tpl = LayerNorm::HParams{};  // Empty: none.
    double embedding_dropout_rate = 0.0;
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    FIELDS(vocab_size, model_dims, num_layers, num_heads, hidden_dims, packed_input,
           segment_positions, position_emb_tpl, separate_embedding_tpl, softmax_tpl,
           stacked_transformer_tpl, final_ln_tpl, embedding_dropout_rate, dtypes, params_init)
  };
  explicit TransformerLm(const HParams& p);

  // Of each token of `ids`, against `labels`.
  CrossEntropy loss(const Features& features) const;
  // f32["batch seq vocab"].
  Tensor logits(const Features& features) const;
  // f32["batch vocab"] of the token that `last` numbers in each row, while decoding.
  Tensor next_logits(const Features& features) const;

 private:
  Tensor block_outputs(const Features& features) const;
  Tensor hidden_states(const Features& features) const;
  SequenceInfo sequence_info(const Features& features, Tensor ids) const;

  HParams p_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<BasePositionEmbedding> position_emb_;
  std::unique_ptr<UnaryLayer> dropout_;
  std::unique_ptr<SequenceLayer> transformer_;
  std::unique_ptr<UnaryLayer> final_ln_;
  std::unique_ptr<BaseSoftmax> softmax_;
};

extern template class HolderOf<TransformerLm, TransformerLm::HParams>;

}  // namespace tessera
