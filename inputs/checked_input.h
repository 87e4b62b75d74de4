// SPDX-License-Identifier: Apache-2.0
// An input of a template with checks of all its results: an Error names the class of an input whose
// results violate inputs/base_input.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "core/hparams/template.h"
#include "inputs/wrapped_input.h"

namespace tessera {

class CheckedInput final : public WrappedInput {
 public:
  using WrappedInput::WrappedInput;
  int64_t global_batch_size() const override;
  void attach(const Infeed& infeed) override;
  int64_t vocab_size() const override;
  // Arrays with the axis "batch" first and one number of rows.
  Batch specification() const override;
  // Batches of these arrays, whose floats are finite.
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override;
  // Its position is the number of batches returned.
  InputState state() const override;
  void restore(const InputState& state) override;
  std::vector<std::string> sources() const override;

 private:
  void check(std::string_view function, const std::optional<Batch>& batch) const;

  Batch specification_;
  std::optional<BatchSizes> sizes_;  // If the infeed has sizes.
  int64_t num_sources_ = 0, position_ = 0;
};

std::unique_ptr<BaseInput> make_input(const Template<BaseInput>& input_tpl);

// Readers of a whole set stop with an Error after this many batches: the input has no end.
inline constexpr int64_t kMostBatchesOfSet = 1'000'000;
void check_that_it_ends(const BaseInput& input, int64_t batches);

}  // namespace tessera
