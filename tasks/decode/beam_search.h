// SPDX-License-Identifier: Apache-2.0
// Beam search as in Pax: every step keeps the `beam_size` most probable unfinished continuations
// and the best finished ones by log-probability / ((5 + n) / 6)^length_penalty for n tokens, stop
// token included (Wu et al., arXiv 1609.08144). It ends early only when no unfinished continuation
// can reach a better score.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/decode/generation.h"

namespace tessera {

struct BeamOptions {
  int64_t beam_size = 4;
  double length_penalty = 0.8;
  int64_t max_steps = 128;
  int64_t num_best = 1;  // Finished continuations to return, at most beam_size.
};

// ((5 + n) / 6)^length_penalty
double length_norm(int64_t tokens, double length_penalty);

class BeamSearch final : public BaseGeneration {
 public:
  BeamSearch(std::vector<int32_t> prompt, const BeamOptions& options, DrawableIds drawable,
             const StopRules& stop);
  // After the prompt all rows have the same logits, so only the first row is used.
  void advance(const RowLogits& logits) override;
  bool done() const override { return done_; }
  const std::vector<int32_t>& next_ids() const override { return next_; }
  const std::vector<int32_t>& parents() const override { return parents_; }
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

  BeamOptions options_;
  DrawableIds drawable_;
  const StopRules& stop_;
  int64_t steps_ = 0;
  std::vector<Continuation> live_ = {Continuation{}};
  std::vector<Continuation> finished_;  // Best first.
  std::vector<int32_t> next_, parents_;
  std::vector<float> scores_;
  std::vector<int32_t> best_ids_;
  bool done_ = false;
};

}  // namespace tessera
