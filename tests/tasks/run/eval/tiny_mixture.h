// SPDX-License-Identifier: Apache-2.0
// A finite dataset from three sources with known byte counts, for evaluation tests. All content of
// a row follows from its number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "inputs/base_input.h"
#include "inputs/synthetic_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

class TinyMixture final : public BaseInput {
 public:
  struct HParams {
    using Instance = TinyMixture;
    static constexpr std::string_view kName = "TinyMixture";
    int64_t global_batch_size = 4;
    int64_t num_rows = 11;
    bool repeat = false;
    bool has_weights = true;  // false: all labels have weight 0.
    int64_t num_silent = 0;  // Number of last rows with sample weight 0 and positive label weights.
    FIELDS(global_batch_size, num_rows, repeat, has_weights, num_silent)
  };
  static constexpr int64_t kSeqLen = 16;
  static constexpr const char* kSources[] = {"books", "code", "web"};

  explicit TinyMixture(const HParams& p);

  static int32_t source_of(int64_t row) { return static_cast<int32_t>(row * row % 7 % 3); }
  static float bytes_of(int64_t row) { return static_cast<float>(20 + row % 5); }
  // A batch of this row only.
  Batch row(int64_t number) const;
  // If set, called before each batch is made, in any run of this process.
  static std::function<void()> before_batch;

  const std::string& name() const override { return name_; }
  int64_t global_batch_size() const override { return p_.global_batch_size; }
  void attach(const Infeed& infeed) override;
  int64_t vocab_size() const override { return letters_.vocab_size(); }
  bool repeats() const override { return p_.repeat; }
  Batch specification() const override;
  std::optional<Batch> get_next() override;
  std::optional<Batch> peek() override;
  void reset() override { position_ = 0; }
  InputState state() const override { return {position_, {}}; }
  void restore(const InputState& state) override { position_ = state.position; }
  std::vector<std::string> sources() const override { return {"books", "code", "web"}; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }

 private:
  HParams p_;
  std::string name_ = "mixture";
  SyntheticInput letters_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer("bytes");  // Needed for bits_per_byte.
  std::vector<RowRange> rows_;
  int64_t position_ = 0;
};

}  // namespace tessera
