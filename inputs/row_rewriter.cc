// SPDX-License-Identifier: Apache-2.0
#include "inputs/row_rewriter.h"

#include "core/base/error.h"
#include "core/hparams/tree.h"
#include "inputs/token_row.h"

namespace tessera {
namespace {

constexpr int64_t kDefaultSeed = 1234;

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

RowRewriter::RowRewriter(const Template<BaseInput>& input_tpl, std::string_view input_class)
    : WrappedInput(nullptr) {
  if (!input_tpl.has()) fail("{}: input_tpl is not set; it reads the tokens", input_class);
  if (predicts_next_tokens(input_tpl.to_tree()))
    fail(
        "{}: the labels of input_tpl are next tokens, expected the row's own tokens; set "
        "input_tpl.labels=shift_right",
        input_class);
  const ErrorContext where("input_tpl");
  input_ = input_tpl.instantiate();
}

RandomDraws RowRewriter::draws_of(int64_t row, const Field<int64_t>& seed, uint64_t purpose) {
  const auto key = static_cast<uint64_t>(seed.get_or(kDefaultSeed));
  return RandomDraws(mix_bits(static_cast<uint64_t>(row), mix_bits(key, purpose)));
}

void RowRewriter::attach(const Infeed& infeed) {
  sizes_ = BatchSizes(*input_, infeed);
  input_->attach(infeed);
}

Batch RowRewriter::rewritten(Batch batch) {
  return rewritten(std::move(batch), sizes_.host_examples(position_));
}

std::optional<Batch> RowRewriter::peek() {
  std::optional<Batch> batch = input_->peek();
  if (batch) batch = rewritten(std::move(*batch));
  return batch;
}

std::optional<Batch> RowRewriter::get_next() {
  std::optional<Batch> batch = input_->get_next();
  if (!batch) return batch;
  batch = rewritten(std::move(*batch));
  ++position_;
  return batch;
}

void RowRewriter::reset() {
  input_->reset();
  sizes_.restart();
  position_ = 0;
}

void RowRewriter::restore(const InputState& state) {
  input_->restore(state);
  position_ = sizes_.resume(input_->name(), input_->state());  // In batches of the current size.
}

}  // namespace tessera
