// SPDX-License-Identifier: Apache-2.0
// Sequences made from a rule, for tests, demonstrations and runs without data: each is a pure
// function of (seed, index), and what a perfect model scores on it is known.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"

namespace tessera {

// Letters are drawn uniformly unless said otherwise.
enum class SyntheticTask {
  kCopy,        // Each token repeats the one `distance` before it; the first `distance` are random.
  kStatedCopy,  // The same at a distance of the sequence's own, which its first token states.
  kHiddenCopy,  // The same, unstated: the model must find the distance.
  kReversal,    // Random letters, a separator, the letters in reverse order.
  kGaussians,   // Letters drawn from a mixture of three clipped Gaussians; nothing else to learn.
  kMixed,       // One of the above, which the first token names.
};

constexpr std::array<EnumName<SyntheticTask>, 6> enum_names(SyntheticTask) {
  return {{{SyntheticTask::kCopy, "copy"},
           {SyntheticTask::kStatedCopy, "stated_copy"},
           {SyntheticTask::kHiddenCopy, "hidden_copy"},
           {SyntheticTask::kReversal, "reversal"},
           {SyntheticTask::kGaussians, "gaussians"},
           {SyntheticTask::kMixed, "mixed"}}};
}

class SyntheticInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = SyntheticInput;
    static constexpr std::string_view kName = "SyntheticInput";
    SyntheticTask task = SyntheticTask::kMixed;
    std::string name = "synthetic";
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    int64_t num_letters = 10;  // The alphabet.
    int64_t distance = 4;      // kCopy's, and the longest of the other copies.
    bool score_all = false;    // Weigh random tokens too, which no model can predict.
    int64_t num_batches = -1;  // End after so many; -1: never.
    Field<int64_t> seed;
    FIELDS(task, name, global_batch_size, seq_len, num_letters, distance, score_all, num_batches,
           seed)
  };
  explicit SyntheticInput(const HParams& p);

  int64_t vocab_size() const override;

  // Tokens 1 to 5 name tasks, 6 separates, then come `distance` numbers, then the letters.
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<bool> determined;  // By the tokens before it.
  };
  Sequence sequence(int64_t index) const;

 private:
  std::optional<int64_t> num_examples() const override { return std::nullopt; }
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;

  HParams p_;
};

extern template class HolderOf<BaseInput, SyntheticInput::HParams>;

}  // namespace tessera
