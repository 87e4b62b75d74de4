// SPDX-License-Identifier: Apache-2.0
// TransformerLm: a stack of transformer layers with embeddings and softmax, and maybe an encoder
// before it.
#pragma once

#include "core/hparams/template.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/models/base_model.h"
#include "layers/models/multi_token_prediction.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"

namespace tessera {

// The encoder of an encoder-decoder model (Vaswani et al., 2017): a stack of blocks over a sequence
// of its own, whose output the blocks of the decoder attend to (DotProductAttention with `cross`).
// What it reads: embedded tokens x["batch seq embed"], and the structure of the batch.
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

// Embeddings, a stack of blocks, a final norm and a softmax. Sizes set here are inherited by every
// layer below that leaves its own unset.
class TransformerLm final : public Layer {
 public:
  struct HParams {
    using Instance = TransformerLm;
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    Required<int64_t> num_layers;
    Required<int64_t> num_heads;
    Required<int64_t> hidden_dims;
    // Packed batches: attend within segments only, and count positions from each segment's start.
    bool packed_input = true;
    bool segment_positions = true;  // false: positions count from the row's start (seqax).
    Template<BasePositionEmbedding> position_emb_tpl;  // Unset: no absolute positions.
    Template<TypeEmbedding> type_emb_tpl;              // Reads token_type_ids; unset: none.
    Template<UnaryLayer> embedding_ln_tpl;       // Norm of the sum of embeddings; unset: none.
    Template<Embedding> separate_embedding_tpl;  // Unset: the softmax's table.
    Template<BaseSoftmax> softmax_tpl = SharedEmbeddingSoftmax::HParams{};
    // Reads encoder_ids, with the table of the decoder's tokens; unset: a decoder only.
    Template<TransformerEncoder> encoder_tpl;
    Template<SequenceLayer> stacked_transformer_tpl = StackedTransformer::HParams{};
    Template<UnaryLayer> final_ln_tpl = LayerNorm::HParams{};  // Unset: no final norm.
    Template<UnaryLayer> head_tpl;  // Between the final norm and the softmax; unset: none.
    // Predicts further tokens, in training only; unset: none.
    Template<MultiTokenPrediction> mtp_tpl;
    double embedding_dropout_rate = 0.0;
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    FIELDS(About(vocab_size, kSize), About(model_dims, kSize), About(num_layers, kLayerCount),
           About(num_heads, kSize), About(hidden_dims, kSize), packed_input, segment_positions,
           position_emb_tpl, type_emb_tpl, embedding_ln_tpl, separate_embedding_tpl, softmax_tpl,
           encoder_tpl, stacked_transformer_tpl, final_ln_tpl, head_tpl, mtp_tpl,
           About(embedding_dropout_rate, kRate), dtypes, params_init)
  };
  explicit TransformerLm(const HParams& p);

  // Returns what the softmax scores, ["batch seq embed"]; in training adds the losses of mtp_tpl.
  Tensor scored(const Features& features) const;
  const BaseSoftmax& softmax() const { return *softmax_.operator->(); }
  // Returns the loss of each token of `ids`, against `labels`.
  CrossEntropy loss(const Features& features) const;
  // Returns f32["batch seq vocab"].
  Tensor logits(const Features& features) const;
  // Returns f32["batch vocab"] for the token numbered `last` in each row, while decoding.
  Tensor next_logits(const Features& features) const;
  std::optional<int32_t> decoder_start_id() const;  // None without an encoder.

 private:
  // The output of the last block, and where its tokens are.
  struct BlockOutputs {
    Tensor x;
    SequenceInfo sequence;
  };
  BlockOutputs block_outputs(const Features& features) const;
  Tensor embed(const Tensor& ids) const;
  Tensor embedded(const Features& features, const Tensor& ids, const Tensor& positions) const;
  void predict_further(const BlockOutputs& outputs, const Features& features) const;
  Tensor head(Tensor x) const;  // Applies what is between the blocks and the softmax.
  SequenceInfo sequence_info(const Features& features, Tensor ids) const;
  void encode(const Features& features, SequenceInfo* sequence) const;

  HParams p_;
  ChildLayer<Embedding> embedding_;
  ChildLayer<BasePositionEmbedding> position_emb_;
  ChildLayer<TypeEmbedding> type_emb_;
  ChildLayer<UnaryLayer> embedding_ln_, dropout_;
  ChildLayer<TransformerEncoder> encoder_;
  ChildLayer<SequenceLayer> transformer_;
  ChildLayer<UnaryLayer> final_ln_, head_;
  ChildLayer<MultiTokenPrediction> mtp_;
  ChildLayer<BaseSoftmax> softmax_;
};

extern template class HolderOf<TransformerLm, TransformerLm::HParams>;
extern template class HolderOf<TransformerEncoder, TransformerEncoder::HParams>;

}  // namespace tessera
