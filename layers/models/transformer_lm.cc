// SPDX-License-Identifier: Apache-2.0
#include "layers/models/transformer_lm.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "layers/dropout.h"
#include "layers/fprop_scope.h"

namespace tessera {

REGISTER_TEMPLATE(TransformerLm, TransformerLm);
REGISTER_TEMPLATE(TransformerEncoder, TransformerEncoder);

TransformerLm::TransformerLm(const HParams& p) : Layer({.dtypes = p.dtypes}), p_(p) {
  softmax_ = child("softmax", p.softmax_tpl);
  if (p.separate_embedding_tpl.has()) {
    embedding_ = child("embedding", p.separate_embedding_tpl);
  } else if (!softmax_->shares_embedding()) {
    fail(
        "softmax_tpl is not SharedEmbeddingSoftmax, so the input embedding needs its own table; "
        "set separate_embedding_tpl");
  }
  if (p.position_emb_tpl.has()) position_emb_ = child("position_emb", p.position_emb_tpl);
  if (p.type_emb_tpl.has()) type_emb_ = child("type_emb", p.type_emb_tpl);
  if (p.embedding_ln_tpl.has()) embedding_ln_ = child("embedding_ln", p.embedding_ln_tpl);
  dropout_ =
      child<UnaryLayer>("embedding_dropout", Dropout::HParams{.rate = p.embedding_dropout_rate});
  if (p.encoder_tpl.has()) encoder_ = child("encoder", p.encoder_tpl);
  if (const auto start = decoder_start_id(); start && *start >= p.vocab_size.get())
    fail("encoder_tpl.decoder_start_id={} is not below vocab_size={}", *start, p.vocab_size.get());
  transformer_ = child("transformer", p.stacked_transformer_tpl);
  if (p.final_ln_tpl.has()) final_ln_ = child("final_ln", p.final_ln_tpl);
  if (p.head_tpl.has()) head_ = child("head", p.head_tpl);
  if (p.mtp_tpl.has()) mtp_ = child("mtp", p.mtp_tpl);
}

SequenceInfo TransformerLm::sequence_info(const Features& features, Tensor ids) const {
  SequenceInfo sequence;
  if (const DecodeCache* cache = FpropScope::current().cache()) {
    sequence.positions = cache->positions(ids.size("seq"));
    return sequence;  // A row is one document.
  }
  if (p_.packed_input) sequence.segment_ids = features.find("segment_ids");
  // Attention compares the ids of whole sequences: gathered here once instead of in each layer.
  if (sequence.segment_ids.valid()) sequence.segment_ids = place(sequence.segment_ids, "attention");
  if (p_.packed_input && p_.segment_positions) sequence.positions = features.find("segment_pos");
  if (!sequence.positions.valid()) sequence.positions = iota({"seq", ids.size("seq"), {}});
  return sequence;
}

TransformerLm::BlockOutputs TransformerLm::block_outputs(const Features& features) const {
  const Tensor ids = features.get("ids");
  SequenceInfo sequence = sequence_info(features, ids);
  if (encoder_) encode(features, &sequence);
  const Tensor x = dropout_(embedded(features, ids, sequence.positions));
  return {transformer_(x, sequence), sequence};
}

void TransformerLm::encode(const Features& features, SequenceInfo* sequence) const {
  const auto encoder_feature = [&](std::string_view name) {
    const Tensor x = features.find(name);
    return x.valid() ? rename(x, "encoder_seq", "seq") : x;
  };
  const Tensor ids = rename(features.get("encoder_ids"), "encoder_seq", "seq");
  SequenceInfo encoder_sequence{.segment_ids = encoder_feature("encoder_segment_ids"),
                                .positions = encoder_feature("encoder_segment_pos")};
  if (encoder_sequence.segment_ids.valid())
    encoder_sequence.segment_ids = place(encoder_sequence.segment_ids, "attention");
  if (!encoder_sequence.positions.valid())
    encoder_sequence.positions = iota({"seq", ids.size("seq"), {}});
  const SequenceInfo encoded = encoder_(embed(ids), encoder_sequence);
  sequence->encoded = encoded.encoded;
  sequence->encoded_segment_ids = encoded.encoded_segment_ids;
}

Tensor TransformerLm::embed(const Tensor& ids) const {
  return embedding_ ? embedding_(ids) : softmax_->embed_ids(ids);
}

Tensor TransformerLm::embedded(const Features& features, const Tensor& ids,
                               const Tensor& positions) const {
  Tensor x = embed(ids);
  if (position_emb_) x = x + position_emb_(positions);
  if (type_emb_) x = type_emb_(x, features.find("token_type_ids"));
  return embedding_ln_ ? embedding_ln_(x) : x;
}

Tensor TransformerLm::head(Tensor x) const {
  if (final_ln_) x = final_ln_(x);
  return head_ ? head_(x) : x;
}

void TransformerLm::predict_further(const BlockOutputs& outputs, const Features& features) const {
  const PredictedTokens tokens{
      .labels = features.get("labels"),
      .weights = features.find("weights"),
      .segment_ids = outputs.sequence.segment_ids,
      .embed = [this](const Tensor& ids) { return embed(ids); },
      .loss = [this](const Tensor& x, const Tensor& labels) { return softmax_->loss(x, labels); }};
  add_loss("mtp_loss", mtp_(outputs.x, outputs.sequence, tokens));
}

Tensor TransformerLm::scored(const Features& features) const {
  const LayerScope scope(*this);
  const BlockOutputs outputs = block_outputs(features);
  if (mtp_ && features.mode == Mode::kTrain) predict_further(outputs, features);
  return head(outputs.x);
}

CrossEntropy TransformerLm::loss(const Features& features) const {
  const Tensor x = scored(features);
  const LayerScope scope(*this);
  return softmax_->loss(x, features.get("labels"));
}

Tensor TransformerLm::logits(const Features& features) const {
  const LayerScope scope(*this);
  return softmax_->logits(head(block_outputs(features).x));
}

Tensor TransformerLm::next_logits(const Features& features) const {
  const LayerScope scope(*this);
  return softmax_->logits(head(at_last(block_outputs(features).x, features.get("last"))));
}

std::optional<int32_t> TransformerLm::decoder_start_id() const {
  if (!encoder_) return std::nullopt;
  return static_cast<int32_t>(p_.encoder_tpl.as<TransformerEncoder::HParams>().decoder_start_id);
}

TransformerEncoder::TransformerEncoder(const HParams& p) {
  if (p.position_emb_tpl.has()) position_emb_ = child("position_emb", p.position_emb_tpl);
  const auto dropout = [&](std::string_view name) {
    return child<UnaryLayer>(name, Dropout::HParams{.rate = p.dropout_rate});
  };
  dropout_ = dropout("dropout");
  transformer_ = child("transformer", p.stacked_transformer_tpl);
  if (p.final_ln_tpl.has()) final_ln_ = child("final_ln", p.final_ln_tpl);
  output_dropout_ = dropout("output_dropout");
}

SequenceInfo TransformerEncoder::fprop(Tensor x, const SequenceInfo& sequence) const {
  DecodeCache* const cache = FpropScope::current().cache();
  // Its sequences are whole, also while the decoder decodes.
  const FpropScope& outer = FpropScope::current();
  const FpropScope whole(outer, outer.mode(), sequence.segment_ids);
  if (position_emb_) x = x + position_emb_(sequence.positions);
  x = transformer_(dropout_(x), sequence);
  x = output_dropout_(final_ln_ ? final_ln_(x) : x);
  SequenceInfo result;
  result.encoded = rename(x, "seq", "key_seq");
  Tensor ids = sequence.segment_ids;
  if (ids.valid() && cache != nullptr) ids = cache->kept("segment_ids", ids);
  if (ids.valid()) result.encoded_segment_ids = rename(ids, "seq", "key_seq");
  return result;
}

}  // namespace tessera
