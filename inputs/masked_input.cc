// SPDX-License-Identifier: Apache-2.0
#include "inputs/masked_input.h"

#include <algorithm>

#include "core/base/error.h"
#include "inputs/shuffle.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, MaskedInput);

namespace {

constexpr int64_t kDefaultSeed = 1234;
constexpr uint64_t kPurpose = 0x6d61736b6564u;  // Separates these draws from those of the order.

// Returns whether the input, or a source of it, has labels that are not the tokens of their row.
bool predicts_next_tokens(const Tree& tree) {
  for (size_t i = 0; i < tree.items.size(); ++i) {
    const bool is_labels = i < tree.keys.size() && tree.keys[i] == "labels";
    if (is_labels && tree.items[i].text != enum_name(Labels::kShiftRight)) return true;
    if (predicts_next_tokens(tree.items[i])) return true;
  }
  return false;
}

}  // namespace

MaskedInput::MaskedInput(const HParams& p) : WrappedInput(nullptr), p_(p) {
  if (p.mask_rate + p.random_rate > 1.0)
    fail("MaskedInput: mask_rate + random_rate is {}; expected at most 1",
         p.mask_rate + p.random_rate);
  if (!p.input_tpl.has()) fail("MaskedInput: input_tpl is not set; it reads the tokens");
  if (predicts_next_tokens(p.input_tpl.to_tree()))
    fail(
        "MaskedInput: the labels of input_tpl are next tokens, expected the row's own tokens; set "
        "input_tpl.labels=shift_right");
  const ErrorContext where("input_tpl");
  input_ = p.input_tpl.instantiate();
}

void MaskedInput::attach(const Infeed& infeed) {
  rows_ = rows_of_host(*input_, infeed);
  input_->attach(infeed);
}

int64_t MaskedInput::vocab_size() const {
  return std::max(input_->vocab_size(), p_.mask_id.get() + 1);
}

void MaskedInput::mask_row(int64_t number, const TokenRow& row) const {
  const auto seed = static_cast<uint64_t>(p_.seed.get_or(kDefaultSeed));
  RandomDraws draws(mix_bits(static_cast<uint64_t>(number), mix_bits(seed, kPurpose)));
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

void MaskedInput::mask(Batch& batch) const {
  int64_t row = 0;
  for (const RowRange& range : rows_)
    for (int64_t i = range.begin; i < range.end; ++i, ++row)
      mask_row(position_ * global_batch_size() + i, token_row(batch, row));
}

std::optional<Batch> MaskedInput::peek() {
  std::optional<Batch> batch = input_->peek();
  if (batch) mask(*batch);
  return batch;
}

std::optional<Batch> MaskedInput::get_next() {
  std::optional<Batch> batch = input_->get_next();
  if (!batch) return batch;
  mask(*batch);
  ++position_;
  return batch;
}

void MaskedInput::reset() {
  input_->reset();
  position_ = 0;
}

void MaskedInput::restore(const InputState& state) {
  input_->restore(state);
  position_ = input_->state().position;  // Position in batches of the current size.
}

}  // namespace tessera
