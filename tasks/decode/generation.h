// SPDX-License-Identifier: Apache-2.0
// One prompt's continuation as it grows, token by token: what the decoder asks of every strategy.
// Sampling and greedy decoding are here; beam search is beam_search.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tasks/decode/sampler.h"
#include "tasks/decode/stop_rules.h"

namespace tessera {

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
