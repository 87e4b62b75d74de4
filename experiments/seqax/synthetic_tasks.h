// SPDX-License-Identifier: Apache-2.0
// seqax's five synthetic tasks, reimplemented: sequences of random lengths that begin with the
// number of their task, packed into rows. The set has a fixed size and is the same on every host.
// The rules are seqax's, the numbers are not.
//
//   1 copy       letters, then the same letters
//   2 reversal   letters, then the same letters backwards
//   3 stated     the distance, then letters that repeat at it
//   4 hidden     as 3, without the distance
//   5 Gaussians  draws from three normal distributions, which differ between sequences
#pragma once

#include <cstdint>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"

namespace tessera {

class SeqaxTasks final : public IndexedInput {
 public:
  struct HParams {
    using Instance = SeqaxTasks;
    std::string split = "train";
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    int64_t num_sequences = 512;
    int64_t max_length = 1024;  // Most tokens of a sequence; lengths are uniform from 1.
    bool shuffle = true;
    bool repeat = true;
    int64_t seed = 1;
    FIELDS(split, About(global_batch_size, kSize), About(seq_len, kSize),
           About(num_sequences, kSize), About(max_length, kSize), shuffle, repeat, seed)
  };
  explicit SeqaxTasks(const HParams& p);

  int64_t vocab_size() const override { return max_length_ + 1; }
  // Returns 2·token + 1 at the start of a sequence, else 2·token, as in flat-tokens files.
  const std::vector<uint32_t>& encoded_tokens() const { return encoded_; }

 private:
  std::optional<int64_t> num_examples() const override;
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;

  int64_t max_length_;
  std::vector<uint32_t> encoded_;
};

extern template class HolderOf<BaseInput, SeqaxTasks::HParams>;

}  // namespace tessera
