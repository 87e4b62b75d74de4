// SPDX-License-Identifier: Apache-2.0
// Masked language modelling (BERT; Devlin et al., 2019, section 3.1): wraps an input of token rows.
// Some tokens of each row are chosen. Of these, most are replaced by the mask token and some by a
// random token; the others stay. Labels are the original tokens, and only chosen positions have a
// loss weight. Trains a LanguageModel whose attention has causal=false.
//
// The choice is a pure function of (seed, number of the row in the stream, position), so it differs
// between epochs and is the same on any number of hosts and after a resume.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/token_row.h"
#include "inputs/wrapped_input.h"

namespace tessera {

class MaskedInput final : public WrappedInput {
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

  void attach(const Infeed& infeed) override;
  int64_t vocab_size() const override;
  // The array label_bytes is 0: the loss of chosen tokens does not cover all bytes of the text.
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override;
  void restore(const InputState& state) override;

 private:
  void mask(Batch& batch) const;
  void mask_row(int64_t number, const TokenRow& row) const;

  HParams p_;
  std::vector<RowRange> rows_;  // This host's rows of the global batch.
  int64_t position_ = 0;        // Batches returned.
};

extern template class HolderOf<BaseInput, MaskedInput::HParams>;

}  // namespace tessera
