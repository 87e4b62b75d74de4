// SPDX-License-Identifier: Apache-2.0
// Span corruption (T5; Raffel et al., 2020, section 3.1.4): wraps an input of token rows. Some
// spans of each row are replaced by one sentinel each, which the encoder reads; the decoder
// predicts the sentinels, each followed by the tokens of its span. Both end with the end token.
// Trains a LanguageModel with an encoder.
#pragma once

#include <span>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/row_rewriter.h"
#include "inputs/token_row.h"

namespace tessera {

class SpanCorruptionInput final : public RowRewriter {
 public:
  struct HParams {
    using Instance = SpanCorruptionInput;
    // Its labels must be the row's own tokens (labels=shift_right); a row is read as one text,
    // whatever documents it has. Unset fields inherit those below of the same name.
    Template<BaseInput> input_tpl;
    // The id of the first sentinel; the next ones are below it. May be beyond the tokenizer's
    // vocabulary. T5: 32099, <extra_id_0>.
    Required<int64_t> first_sentinel_id;
    int64_t end_id = 1;             // Ends both sequences.
    int64_t start_id = 0;           // The decoder's first token: encoder_tpl.decoder_start_id.
    double noise_density = 0.15;    // The share of tokens in spans that are replaced.
    double mean_span_length = 3.0;  // In tokens.
    Required<int64_t> global_batch_size;
    // Tokens of a row of input_tpl. By the defaults above 568 become 512 for the encoder and 114
    // for the decoder.
    Required<int64_t> seq_len;
    Field<int64_t> seed;
    FIELDS(input_tpl, About(first_sentinel_id, kNotNegative), About(end_id, kNotNegative),
           About(start_id, kNotNegative), About(noise_density, kRate),
           About(mean_span_length, {.min = 1}), About(global_batch_size, kSize),
           About(seq_len, {.min = 2}), seed)
  };
  explicit SpanCorruptionInput(const HParams& p);

  int64_t vocab_size() const override;
  // ids, labels, weights, paddings, segment_ids, segment_pos ["batch seq"], encoder_ids,
  // encoder_segment_ids and encoder_segment_pos ["batch encoder_seq"], and the arrays of each row.
  // label_bytes is 0: the labels do not cover all bytes of the text.
  Batch specification() const override;
  // Its batches are not those of the input.
  void recycle(Batch) override {}  // NOLINT(performance-unnecessary-value-param)

 private:
  Batch rewritten(Batch batch, std::span<const int64_t> numbers) override;
  void corrupt(int64_t number, const TokenRow& from, int64_t row, Batch& batch) const;

  HParams p_;
};

extern template class HolderOf<BaseInput, SpanCorruptionInput::HParams>;

}  // namespace tessera
