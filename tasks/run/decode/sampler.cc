// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "core/base/error.h"
#include "core/base/random.h"

namespace tessera {
namespace {

constexpr double kColdest = 1e-6;  // Lower temperatures are greedy.
constexpr size_t kBlock = 256;     // Weights are summed in blocks; one block is searched.

// exp(x) for x <= 0 with relative error 2e-7: 2^n times a polynomial; 0 below e^-87. Bounds are
// compared as integers, which compilers vectorise.
inline float exp_of_negative(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr int32_t kFarthest = std::bit_cast<int32_t>(87.0f);
  const int32_t distance = std::bit_cast<int32_t>(x) & 0x7fffffff;
  const float near = -std::bit_cast<float>(distance < kFarthest ? distance : kFarthest);
  const auto n = static_cast<int32_t>(near * kLog2E - 0.5f);
  const float power = static_cast<float>(n);
  const float r = near - power * kLn2High - power * kLn2Low;
  float y = 1.9875691500e-4f;  // Cephes' expf.
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  const float result = y * std::bit_cast<float>((n + 127) << 23);
  const int32_t kept = distance > kFarthest ? 0 : -1;
  return std::bit_cast<float>(std::bit_cast<int32_t>(result) & kept);
}

// weights[i] = exp((scores[i] - largest) * scale)
void weigh(std::span<const float> scores, float largest, float scale, float* weights) {
  for (size_t i = 0; i < scores.size(); ++i)
    weights[i] = exp_of_negative((scores[i] - largest) * scale);
}

constexpr size_t kLanes = 8;  // Independent sums and maxima, so that loops are vectorised.

// The largest element; NaN if any is NaN.
float largest_of(std::span<const float> values) {
  std::array<float, kLanes> lanes;
  lanes.fill(kNeverScore);
  std::array<int32_t, kLanes> unordered{};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
      unordered[lane] |= value == value ? 0 : 1;
    }
  for (; i < values.size(); ++i) {
    lanes[0] = std::max(lanes[0], values[i]);
    unordered[0] |= values[i] == values[i] ? 0 : 1;
  }
  for (const int32_t each : unordered)
    if (each != 0) return std::numeric_limits<float>::quiet_NaN();
  return *std::max_element(lanes.begin(), lanes.end());
}

double sum_of(std::span<const float> values) {
  std::array<double, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<double>(values[i + lane]);
  for (; i < values.size(); ++i) lanes[0] += static_cast<double>(values[i]);
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void check_finite(float largest) {
  if (!std::isfinite(largest))
    fail("the model's scores hold no finite maximum (it is {}); its weights may have diverged",
         plain_nan(largest));
}

// Block sums reduce the search in the whole array to a search in one block.
int32_t find_weight(std::span<const float> weights, double uniform) {
  std::vector<double> sums;
  for (size_t i = 0; i < weights.size(); i += kBlock)
    sums.push_back(sum_of(weights.subspan(i, std::min(kBlock, weights.size() - i))));
  double total = 0.0;
  for (const double sum : sums) total += sum;
  double left = uniform * total;
  size_t block = 0;
  while (block + 1 < sums.size() && left >= sums[block]) left -= sums[block++];
  int32_t last = -1;  // The last id of positive weight, in case rounding overshoots.
  for (size_t i = block * kBlock; i < weights.size(); ++i) {
    if (!(weights[i] > 0.0f)) continue;
    last = static_cast<int32_t>(i);
    left -= static_cast<double>(weights[i]);
    if (left < 0.0) return last;
  }
  for (size_t i = block * kBlock; last < 0 && i-- > 0;)
    if (weights[i] > 0.0f) last = static_cast<int32_t>(i);
  return last;
}

}  // namespace

uint64_t sample_key(uint64_t seed, std::span<const int32_t> prompt, int64_t sample) {
  const std::string_view bytes(reinterpret_cast<const char*>(prompt.data()), prompt.size_bytes());
  return random_key(seed, bytes, sample);
}

double sample_uniform(uint64_t key, int64_t token) {
  const PhiloxBlock bits = philox(key, static_cast<uint64_t>(token), 0);
  // 53 bits: an id of a large vocabulary may be less probable than 2^-24.
  const uint64_t mantissa = (uint64_t{bits[0]} << 21) ^ (bits[1] >> 11);
  return static_cast<double>(mantissa) * 0x1p-53;
}

double log_sum_exp(std::span<const float> logits) {
  const float largest = largest_of(logits);
  check_finite(largest);
  std::array<float, kBlock> weights;
  double sum = 0.0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const size_t count = std::min(kBlock, logits.size() - i);
    weigh(logits.subspan(i, count), largest, 1.0f, weights.data());
    sum += sum_of(std::span(weights).first(count));
  }
  return largest + std::log(sum);
}

void mask_scores(std::span<const float> logits, const DrawableIds& drawable,
                 std::span<const int32_t> suppressed, std::span<float> scores) {
  for (size_t i = 0; i < logits.size(); ++i) scores[i] = drawable[i] != 0 ? logits[i] : kNeverScore;
  for (const int32_t id : suppressed) scores[static_cast<size_t>(id)] = kNeverScore;
}

Sampler::Sampler(const SamplerOptions& options, DrawableIds drawable)
    : options_(options), drawable_(std::move(drawable)), scores_(drawable_.size()) {}

DrawnToken Sampler::draw(std::span<const float> logits, std::span<const int32_t> suppressed,
                         double uniform) {
  CHECK(logits.size() == drawable_.size(), "{} scores for {} ids", logits.size(), drawable_.size());
  const double normaliser = log_sum_exp(logits);
  mask_scores(logits, drawable_, suppressed, scores_);
  largest_ = largest_of(scores_);
  if (!std::isfinite(largest_))
    fail("none of {} ids may be drawn: all are reserved, padding or suppressed", logits.size());
  const int32_t id = choose(uniform);
  return {id, static_cast<double>(logits[static_cast<size_t>(id)]) - normaliser};
}

int32_t Sampler::choose(double uniform) {
  if (options_.temperature < kColdest || options_.top_k == 1)
    return static_cast<int32_t>(std::find(scores_.begin(), scores_.end(), largest_) -
                                scores_.begin());
  const auto vocab = static_cast<int64_t>(scores_.size());
  return options_.top_k > 0 && options_.top_k < vocab ? choose_among_kept(uniform)
                                                      : choose_among_all(uniform);
}

int32_t Sampler::choose_among_kept(double uniform) {
  top_ids(scores_, options_.top_k, &kept_);
  std::vector<double> cumulative;
  double total = 0.0;
  for (const int32_t id : kept_) {
    const double below = scores_[static_cast<size_t>(id)] - largest_;
    cumulative.push_back(total += std::exp(below / options_.temperature));
  }
  const auto end =
      options_.top_p >= 1.0
          ? cumulative.end() - 1
          : std::lower_bound(cumulative.begin(), cumulative.end() - 1, options_.top_p * total);
  const auto drawn = std::upper_bound(cumulative.begin(), end, uniform * *end);
  return kept_[static_cast<size_t>(drawn - cumulative.begin())];
}

double Sampler::weigh_all() {
  weights_.resize(scores_.size());
  weigh(scores_, largest_, static_cast<float>(1.0 / options_.temperature), weights_.data());
  return sum_of(weights_);
}

int32_t Sampler::choose_among_all(double uniform) {
  const double total = weigh_all();
  if (options_.top_p < 1.0) drop_beyond_top_p(total);
  return find_weight(weights_, uniform);
}

// A histogram of scores, best bucket first, shows where the cumulative probability reaches top_p;
// only that bucket is sorted.
void Sampler::drop_beyond_top_p(double total) {
  constexpr int kBuckets = 1024;
  constexpr float kBucketsPerNat = 32.0f;
  const auto scale = static_cast<float>(kBucketsPerNat / options_.temperature);
  std::array<double, kBuckets> masses{};
  buckets_.resize(scores_.size());
  for (size_t i = 0; i < scores_.size(); ++i) {
    const float place = (largest_ - scores_[i]) * scale;
    buckets_[i] = static_cast<uint16_t>(place < kBuckets - 1 ? place : kBuckets - 1);
  }
  for (size_t i = 0; i < scores_.size(); ++i) masses[buckets_[i]] += weights_[i];
  double left = options_.top_p * total;
  uint16_t last = 0;
  while (last + 1 < kBuckets && left > masses[last]) left -= masses[last++];

  kept_.clear();
  for (size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i] == last && weights_[i] > 0.0f) kept_.push_back(static_cast<int32_t>(i));
  std::sort(kept_.begin(), kept_.end(),
            [this](int32_t a, int32_t b) { return scores_before(scores_, a, b); });
  for (size_t i = 0; i < weights_.size(); ++i)
    if (buckets_[i] > last) weights_[i] = 0.0f;
  for (const int32_t id : kept_) {
    float& weight = weights_[static_cast<size_t>(id)];
    if (left > 0.0) {
      left -= static_cast<double>(weight);
    } else {
      weight = 0.0f;
    }
  }
}

// Collects several times k candidates, keeps the k best, and from then on skips ids that are not
// better than the worst of these. Nearly all ids cost one comparison.
void top_ids(std::span<const float> scores, int64_t k, std::vector<int32_t>* ids) {
  const auto before = [scores](int32_t a, int32_t b) { return scores_before(scores, a, b); };
  const auto most = static_cast<size_t>(k);
  const auto shrink = [&] {
    if (ids->size() <= most) return;
    std::nth_element(ids->begin(), ids->begin() + k - 1, ids->end(), before);
    ids->resize(most);
  };
  ids->clear();
  float threshold = kNeverScore;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(scores[i] > threshold)) continue;
    ids->push_back(static_cast<int32_t>(i));
    if (ids->size() < 4 * most) continue;
    shrink();
    threshold = scores[static_cast<size_t>(ids->back())];
  }
  shrink();
  std::sort(ids->begin(), ids->end(), before);
}

}  // namespace tessera
