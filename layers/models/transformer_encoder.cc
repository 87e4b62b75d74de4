// SPDX-License-Identifier: Apache-2.0
#include "layers/models/transformer_encoder.h"

#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "layers/dropout.h"
#include "layers/fprop_scope.h"

namespace tessera {

REGISTER_TEMPLATE(TransformerEncoder, TransformerEncoder);

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
