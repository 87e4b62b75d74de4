// SPDX-License-Identifier: Apache-2.0
// Chooses a token from the logits of one position: greedily, or drawn after temperature, top-k and
// top-p. Linear in the vocabulary size; only candidates are sorted.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera {

// The key of a sample's random numbers, and its number for the token-th token, in [0, 1):
// independent of the batch and of the order of prompts.
uint64_t sample_key(uint64_t seed, std::span<const int32_t> prompt, int64_t sample);
double sample_uniform(uint64_t key, int64_t token);

struct DrawnToken {
  int32_t id = 0;
  double log_probability = 0.0;  // Under the model: temperature 1, all ids.
};

struct SamplerOptions {
  double temperature = 1.0;  // 0: the most probable id; ties go to the smallest.
  int64_t top_k = 0;         // 0: no limit.
  double top_p = 1.0;        // Applied after top_k.
};

// The ids that may be drawn (excluding, say, padding of the vocabulary). One byte per id, because
// loops over it are vectorised.
using DrawableIds = std::vector<uint8_t>;

// The scores of drawable ids; kNeverScore for the rest.
void mask_scores(std::span<const float> logits, const DrawableIds& drawable,
                 std::span<const int32_t> suppressed, std::span<float> scores);

// log Σ exp(logits). Error if they are not finite.
double log_sum_exp(std::span<const float> logits);

class Sampler {
 public:
  Sampler(const SamplerOptions& options, DrawableIds drawable);

  // `suppressed` ids are excluded this time. Error if no id is left or a score is not finite.
  DrawnToken draw(std::span<const float> logits, std::span<const int32_t> suppressed,
                  double uniform);

 private:
  int32_t choose(double uniform);
  int32_t choose_among_kept(double uniform);
  int32_t choose_among_all(double uniform);
  void drop_beyond_top_p(double total);
  double weigh_all();

  SamplerOptions options_;
  DrawableIds drawable_;
  // Scratch of the size of the vocabulary.
  std::vector<float> scores_;   // kNeverScore: excluded.
  std::vector<float> weights_;  // exp((score - largest) / temperature)
  std::vector<uint16_t> buckets_;
  std::vector<int32_t> kept_;
  float largest_ = 0.0f;
};

// The score of an excluded id.
inline constexpr float kNeverScore = -std::numeric_limits<float>::infinity();

// Whether id a ranks before id b: a higher score, or an equal one and a smaller id.
inline bool scores_before(std::span<const float> scores, int32_t a, int32_t b) {
  const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
  return x > y || (x == y && a < b);
}

// The k best ids in that order; fewer if fewer are not excluded.
void top_ids(std::span<const float> scores, int64_t k, std::vector<int32_t>* ids);

}  // namespace tessera
