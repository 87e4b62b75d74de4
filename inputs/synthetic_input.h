// SPDX-License-Identifier: Apache-2.0
// Synthetic sequences for tests, demonstrations and runs without data. Each is a pure function of
// (seed, index), and the score of a perfect model is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"

namespace tessera {

// Letters are uniform unless stated otherwise.
enum class SyntheticTask {
  kCopy,        // Each token repeats the one `distance` before it; the first `distance` are random.
  kStatedCopy,  // A random distance, given by the first token.
  kHiddenCopy,  // A random distance, not given: the model must infer it.
  kReversal,    // Random letters, a separator, the letters in reverse order.
  kGaussians,   // Letters from a mixture of three clipped Gaussians.
  kMixed,       // One of the above, named by the first token.
};

class SyntheticInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = SyntheticInput;
    SyntheticTask task = SyntheticTask::kMixed;
    std::string name = "synthetic";
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    int64_t num_letters = 10;  // Alphabet size.
    int64_t distance = 4;      // Distance of kCopy; the maximum distance of the other copies.
    bool score_all = false;    // Also give weight to random tokens, which no model can predict.
    int64_t num_batches = -1;  // End after this many; -1: never.
    Field<int64_t> seed;
    FIELDS(task, name, About(global_batch_size, kSize), About(seq_len, kSize),
           About(num_letters, kSize), About(distance, kSize), score_all,
           About(num_batches, "batches until the end; -1: no limit", {.min = 1, .also = -1}), seed)
  };
  explicit SyntheticInput(const HParams& p);

  int64_t vocab_size() const override;

  // Tokens: 1 to 5 name tasks, 6 is the separator, then `distance` numbers, then letters.
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<bool> determined;  // Determined by the preceding tokens.
  };
  Sequence sequence(int64_t index) const;

 private:
  std::optional<int64_t> num_examples() const override { return std::nullopt; }
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;

  HParams p_;
};

extern template class HolderOf<BaseInput, SyntheticInput::HParams>;

}  // namespace tessera
