// SPDX-License-Identifier: Apache-2.0
#include "inputs/masked_input.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, MaskedInput);

namespace {

constexpr uint64_t kPurpose = 0x6d61736b6564u;  // Separates these draws from those of the order.

}  // namespace

MaskedInput::MaskedInput(const HParams& p) : RowRewriter(p.input_tpl, "MaskedInput"), p_(p) {
  if (p.mask_rate + p.random_rate > 1.0)
    fail("MaskedInput: mask_rate + random_rate is {}; expected at most 1",
         p.mask_rate + p.random_rate);
}

int64_t MaskedInput::vocab_size() const {
  return std::max(input_->vocab_size(), p_.mask_id.get() + 1);
}

void MaskedInput::mask_row(int64_t number, const TokenRow& row) const {
  RandomDraws draws = draws_of(number, p_.seed, kPurpose);
  const int64_t vocab = input_->vocab_size();
  for (size_t i = 0; i < row.ids.size(); ++i) {
    // Both are drawn at every position, so that one position does not depend on others.
    const double drawn = draws.uniform();
    const int64_t random_id = draws.below(vocab);
    const bool is_chosen = row.weights[i] > 0.0f && drawn < p_.chosen_rate;
    row.ids[i] = row.labels[i];
    if (!is_chosen) {
      row.weights[i] = 0.0f;
    } else if (drawn < p_.chosen_rate * p_.mask_rate) {
      row.ids[i] = static_cast<int32_t>(p_.mask_id.get());
    } else if (drawn < p_.chosen_rate * (p_.mask_rate + p_.random_rate)) {
      row.ids[i] = static_cast<int32_t>(random_id);
    }
  }
  *row.label_bytes = 0.0f;
}

Batch MaskedInput::rewritten(Batch batch, std::span<const int64_t> numbers) {
  for (size_t i = 0; i < numbers.size(); ++i)
    mask_row(numbers[i], token_row(batch, static_cast<int64_t>(i)));
  return batch;
}

}  // namespace tessera
