// SPDX-License-Identifier: Apache-2.0
// One prompt's continuation as it grows, token by token: what the decoder asks of every strategy.
// Sampling and greedy decoding are here; beam search is beam_search.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/hparams/enum_names.h"
#include "tasks/decode/prompt_text.h"
#include "tasks/decode/sampler.h"
#include "tasks/decode_hparams.h"

namespace tessera {

// Why a continuation ended.
enum class Finish { kStopToken, kStopString, kLength };

constexpr std::array<EnumName<Finish>, 3> enum_names(Finish) {
  return {{{Finish::kStopToken, "stop_token"},
           {Finish::kStopString, "stop_string"},
           {Finish::kLength, "length"}}};
}

// When a continuation ends: at a stop token, before a stop string, or after max_steps tokens.
class StopRules {
 public:
  // `text` outlives this. Error for a stop token that there is not.
  StopRules(const DecodeHParams& p, const PromptText& text);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  // Those that may not come as token number `count` (from 1): all until min_decode_steps are past.
  const std::vector<int32_t>& suppressed(int64_t count) const {
    return count > min_steps_ ? none_ : tokens_;
  }
  // Whether `ids`, the last of which is new, are a whole continuation, of at most `max_steps`.
  std::optional<Finish> finish(const std::vector<int32_t>& prompt, const std::vector<int32_t>& ids,
                               int64_t max_steps) const;
  // The text of a continuation, which ends before a stop string and shows no stop token.
  std::string shown(const std::vector<int32_t>& prompt, const std::vector<int32_t>& ids,
                    Finish finish) const;

 private:
  size_t stop_string_in(const std::string& text) const;  // npos: none.

  const PromptText& text_;
  int64_t min_steps_;
  std::vector<int32_t> tokens_, none_;
  std::vector<std::string> strings_;
};

// A continuation of a prompt.
struct Continuation {
  std::vector<int32_t> ids;      // A stop token at its end included.
  double log_probability = 0.0;  // Of all ids, by the model: temperature 1, nothing left out.
  double score = 0.0;            // What n-best lists are sorted by; elsewhere log_probability.
  Finish finish = Finish::kLength;
};

// The logits of the rows of a generation, in their order.
using RowLogits = std::vector<std::span<const float>>;

// It takes `rows` consecutive rows of the batch, all of which have read the prompt.
class BaseGeneration {
 public:
  virtual ~BaseGeneration() = default;
  const std::vector<int32_t>& prompt() const { return prompt_; }

  // What follows the prompt, or the ids that next_ids() gave.
  virtual void advance(const RowLogits& logits) = 0;
  virtual bool done() const = 0;
  // The ids that the first rows take next; the other rows, if any, idle.
  virtual const std::vector<int32_t>& next_ids() const = 0;
  // The row, of this generation, whose cache each of those goes on from.
  virtual const std::vector<int32_t>& parents() const = 0;
  // Once done: the best first.
  virtual std::vector<Continuation> take() = 0;

 protected:
  explicit BaseGeneration(std::vector<int32_t> prompt) : prompt_(std::move(prompt)) {}

 private:
  std::vector<int32_t> prompt_;
};

// Greedy decoding and sampling, one row.
class SampledGeneration final : public BaseGeneration {
 public:
  // At most `max_steps` tokens, by the random numbers of `key`. The sampler may serve many.
  SampledGeneration(std::vector<int32_t> prompt, int64_t max_steps, uint64_t key, Sampler& sampler,
                    const StopRules& stop);
  void advance(const RowLogits& logits) override;
  bool done() const override { return done_; }
  const std::vector<int32_t>& next_ids() const override { return next_; }
  const std::vector<int32_t>& parents() const override { return parents_; }
  std::vector<Continuation> take() override { return {std::move(continuation_)}; }

 private:
  int64_t max_steps_;
  uint64_t key_;
  Sampler& sampler_;
  const StopRules& stop_;
  Continuation continuation_;
  std::vector<int32_t> next_;
  const std::vector<int32_t> parents_ = {0};
  bool done_ = false;
};

}  // namespace tessera
