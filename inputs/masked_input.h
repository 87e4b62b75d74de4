// SPDX-License-Identifier: Apache-2.0
// Masked language modelling (BERT; Devlin et al., 2019, section 3.1): wraps an input of token rows.
// Some tokens of each row are chosen. Of these, most are replaced by the mask token and some by a
// random token; the others stay. Labels are the original tokens, and only chosen positions have a
// loss weight. Trains a LanguageModel whose attention has causal=false.
#pragma once

#include <cstdint>
#include <span>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/row_rewriter.h"
#include "inputs/token_row.h"

namespace tessera {

class MaskedInput final : public RowRewriter {
 public:
  struct HParams {
    using Instance = MaskedInput;
    // Its labels must be the row's own tokens (labels=shift_right). Tokens whose label has weight 0
    // are never chosen. Unset fields inherit those below of the same name.
    Template<BaseInput> input_tpl;
    Required<int64_t> mask_id;  // Id of the mask token; may be beyond the tokenizer's vocabulary.
    double chosen_rate = 0.15;  // Fraction of all tokens that are chosen, independently.
    double mask_rate = 0.8;     // Fraction of the chosen tokens that become the mask token.
    double random_rate = 0.1;   // Fraction of the chosen tokens that become a random token.
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    Field<int64_t> seed;
    FIELDS(input_tpl, About(mask_id, kNotNegative), About(chosen_rate, kShare),
           About(mask_rate, kShare), About(random_rate, kShare), About(global_batch_size, kSize),
           About(seq_len, kSize), seed)
  };
  explicit MaskedInput(const HParams& p);

  int64_t vocab_size() const override;

 private:
  // The array label_bytes becomes 0: the loss of chosen tokens does not cover all bytes of the
  // text.
  Batch rewritten(Batch batch, std::span<const int64_t> numbers) override;
  void mask_row(int64_t number, const TokenRow& row) const;

  HParams p_;
};

extern template class HolderOf<BaseInput, MaskedInput::HParams>;

}  // namespace tessera
