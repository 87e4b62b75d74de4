// SPDX-License-Identifier: Apache-2.0
// Rows such as "tessera=aeersst": letters, and the same letters sorted. A row is generated from its
// index, so that there is no file and no end. Only the answer is scored.
#pragma once

#include "core/hparams/template.h"
#include "inputs/indexed_input.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace my_project {

class Words final : public tessera::IndexedInput {
 public:
  struct HParams {
    using Instance = Words;
    static constexpr std::string_view kName = "my_project.Words";
    tessera::Required<int64_t> global_batch_size;
    int64_t seed = 1;
    int64_t num_batches = -1;  // -1: endless.
    FIELDS(global_batch_size, seed, num_batches)
  };
  explicit Words(const HParams& p);

  static constexpr int64_t kLongestWord = 8;
  int64_t vocab_size() const override { return bytes_->vocab_size(); }
  const tessera::Tokenizer* tokenizer() const override { return bytes_.get(); }

 private:
  std::optional<int64_t> num_examples() const override { return std::nullopt; }
  void fill_example(int64_t epoch, int64_t index, const tessera::TokenRow& row) const override;

  std::unique_ptr<tessera::Tokenizer> bytes_ = tessera::make_tokenizer("bytes");
  tessera::RowLayout layout_{tessera::Labels::kNextToken, bytes_.get()};
};

}  // namespace my_project
