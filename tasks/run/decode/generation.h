// SPDX-License-Identifier: Apache-2.0
// The growing continuation of one prompt: the interface between the decoder and a strategy, and the
// strategies (greedy and sampled decoding, beam search), with their common rules of when to stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tasks/run/decode/prompt_text.h"
#include "tasks/run/decode/sampler.h"
#include "tasks/task/hparams.h"

namespace tessera {

// Why a continuation ended.
enum class Finish { kStopToken, kStopString, kLength };

// When a continuation ends: at a stop token, before a stop string, or after max_steps tokens.
class StopRules {
 public:
  // `text` outlives this. Error for an unknown stop token.
  StopRules(const DecodeHParams& p, const PromptText& text);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  // Ids that token number `count` (from 1) must not be: stop tokens, up to min_decode_steps.
  const std::vector<int32_t>& suppressed(int64_t count) const {
    return count > min_steps_ ? none_ : tokens_;
  }
  // Whether `ids`, whose last is new, are a finished continuation of at most `max_steps` tokens.
  std::optional<Finish> finish(const std::vector<int32_t>& prompt, const std::vector<int32_t>& ids,
                               int64_t max_steps) const;
  // The text of a continuation without stop string and stop token.
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
  std::vector<int32_t> ids;      // With the stop token, if any.
  double log_probability = 0.0;  // Sum over all ids under the model: temperature 1, no filtering.
  double score = 0.0;            // Sorts n-best lists; without beam search, log_probability.
  Finish finish = Finish::kLength;
};

// The logits of a generation's rows, in order.
using RowLogits = std::vector<std::span<const float>>;

// Uses `rows` consecutive rows of the batch, which have all read the prompt.
class BaseGeneration {
 public:
  virtual ~BaseGeneration() = default;
  const std::vector<int32_t>& prompt() const { return prompt_; }

  // Takes the logits after the prompt, or after the ids of next_ids().
  virtual void advance(const RowLogits& logits) = 0;
  bool done() const { return done_; }
  // The next ids of the first rows; the remaining rows idle.
  const std::vector<int32_t>& next_ids() const { return next_; }
  // For each of them, the row of this generation whose cache it continues.
  const std::vector<int32_t>& parents() const { return parents_; }
  // When done: best first.
  virtual std::vector<Continuation> take() = 0;

 protected:
  explicit BaseGeneration(std::vector<int32_t> prompt) : prompt_(std::move(prompt)) {}

  bool done_ = false;
  std::vector<int32_t> next_;
  std::vector<int32_t> parents_ = {0};

 private:
  std::vector<int32_t> prompt_;
};

// Greedy decoding and sampling; uses one row.
class SampledGeneration final : public BaseGeneration {
 public:
  // At most `max_steps` tokens, with the random numbers of `key`. The sampler may be shared.
  SampledGeneration(std::vector<int32_t> prompt, int64_t max_steps, uint64_t key, Sampler& sampler,
                    const StopRules& stop);
  void advance(const RowLogits& logits) override;
  std::vector<Continuation> take() override { return {std::move(continuation_)}; }

 private:
  int64_t max_steps_;
  uint64_t key_;
  Sampler& sampler_;
  const StopRules& stop_;
  Continuation continuation_;
};

// Beam search as in Pax: every step keeps the `beam_size` most probable unfinished continuations
// and the best finished ones by log-probability / ((5 + n) / 6)^length_penalty for n tokens, stop
// token included (Wu et al., arXiv 1609.08144). It ends early only when no unfinished continuation
// can reach a better score.
class BeamSearch final : public BaseGeneration {
 public:
  // Keeps p.beam_size continuations of up to p.max_decode_steps tokens and returns p.num_samples.
  BeamSearch(std::vector<int32_t> prompt, const DecodeHParams& p, DrawableIds drawable,
             const StopRules& stop);
  // After the prompt all rows have the same logits, so only the first row is used.
  void advance(const RowLogits& logits) override;
  std::vector<Continuation> take() override;

 private:
  struct Candidate {
    int32_t parent = 0;
    int32_t id = 0;
    double log_probability = 0.0;
  };
  void expand(int32_t parent, std::span<const float> logits, std::vector<Candidate>* candidates);
  Continuation extended(const Candidate& candidate) const;
  void finish(Continuation continuation, Finish reason);
  void keep_best(std::vector<Candidate> candidates);
  bool can_improve() const;
  double score_of(double log_probability, int64_t tokens) const;

  DecodeHParams p_;
  DrawableIds drawable_;
  const StopRules& stop_;
  int64_t steps_ = 0;
  std::vector<Continuation> live_ = {Continuation{}};
  std::vector<Continuation> finished_;  // Best first.
  std::vector<float> scores_;
  std::vector<int32_t> best_ids_;
};

}  // namespace tessera
