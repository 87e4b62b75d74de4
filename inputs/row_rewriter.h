// SPDX-License-Identifier: Apache-2.0
// The base of inputs that make their batches from rows of tokens of another input: the masked
// tokens of BERT, the corrupted spans of T5. What they draw is a function of (seed, number of the
// row in the stream), so it differs between epochs and is the same on any number of hosts and after
// a resume.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/hparams/template.h"
#include "inputs/shuffle.h"
#include "inputs/wrapped_input.h"

namespace tessera {

class RowRewriter : public WrappedInput {
 public:
  void attach(const Infeed& infeed) override;
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override;
  void restore(const InputState& state) override;

 protected:
  // The labels of `input_tpl` must be the row's own tokens (labels=shift_right). Error, which names
  // `input_class`, if they are not.
  RowRewriter(const Template<BaseInput>& input_tpl, std::string_view input_class);

  // The random numbers of a row. `purpose` separates the draws of different inputs.
  static RandomDraws draws_of(int64_t row, const Field<int64_t>& seed, uint64_t purpose);

 private:
  // `numbers`: for each row of the batch, its number in the stream.
  virtual Batch rewritten(Batch batch, std::span<const int64_t> numbers) = 0;
  Batch rewritten(Batch batch);

  BatchSizes sizes_;
  int64_t position_ = 0;  // Batches returned.
};

}  // namespace tessera
