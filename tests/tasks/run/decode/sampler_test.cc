// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/sampler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "core/base/random.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

std::vector<float> random_logits(int64_t count, double spread, uint64_t seed = 3) {
  std::vector<float> logits;
  for (int64_t i = 0; i < count; i += 4)
    for (const float normal : normals_from_block(philox(seed, static_cast<uint64_t>(i), 0)))
      logits.push_back(static_cast<float>(spread) * normal);
  logits.resize(static_cast<size_t>(count));
  return logits;
}

// The reference distribution: sort all probabilities, cut, normalise.
std::vector<double> distribution(const std::vector<float>& logits, const SamplerOptions& options,
                                 const DrawableIds& drawable) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < logits.size(); ++i)
    if (drawable[i] != 0) order.push_back(static_cast<int32_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options.top_k > 0 && options.top_k < std::ssize(order))
    order.resize(static_cast<size_t>(options.top_k));
  std::vector<double> weights;
  for (const int32_t id : order)
    weights.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) -
                                static_cast<double>(logits[static_cast<size_t>(order[0])])) /
                               options.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0.0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * total))
    kept += weights[count++];
  std::vector<double> probabilities(logits.size(), 0.0);
  for (size_t i = 0; i < count; ++i)
    probabilities[static_cast<size_t>(order[i])] = weights[i] / kept;
  return probabilities;
}

// Wilson and Hilferty's normal approximation of chi-square, in standard deviations from its mean.
double chi_square_deviation(const std::vector<int64_t>& counts,
                            const std::vector<double>& probabilities, int64_t draws) {
  double chi_square = 0.0, rest_expected = 0.0;
  int64_t cells = 0, rest = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(draws);
    if (expected < 8.0) {  // Rare ids share a cell.
      rest += counts[i];
      rest_expected += expected;
      continue;
    }
    const double off = static_cast<double>(counts[i]) - expected;
    chi_square += off * off / expected;
    ++cells;
  }
  if (rest_expected >= 8.0) {
    const double off = static_cast<double>(rest) - rest_expected;
    chi_square += off * off / rest_expected;
    ++cells;
  }
  if (cells < 2) return 0.0;
  const auto freedom = static_cast<double>(cells - 1);
  const double spread = 2.0 / (9.0 * freedom);
  return (std::cbrt(chi_square / freedom) - (1.0 - spread)) / std::sqrt(spread);
}

struct Counted {
  std::vector<int64_t> counts;
  std::vector<double> probabilities;
};

Counted count_draws(const std::vector<float>& logits, const SamplerOptions& options,
                    const DrawableIds& drawable, int64_t draws) {
  Sampler sampler(options, drawable);
  Counted counted{std::vector<int64_t>(logits.size(), 0), distribution(logits, options, drawable)};
  const std::vector<int32_t> prompt = {4, 2};
  const uint64_t key = sample_key(11, prompt, 0);
  for (int64_t i = 0; i < draws; ++i)
    ++counted.counts[static_cast<size_t>(sampler.draw(logits, {}, sample_uniform(key, i)).id)];
  return counted;
}

TEST_CASE("the frequencies of drawn tokens follow temperature, top-k and top-p") {
  const std::vector<float> logits = random_logits(50, 1.5);
  DrawableIds drawable(50, 1);
  drawable[0] = drawable[7] = 0;
  drawable[static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())] =
      0;
  for (const SamplerOptions& options :
       {SamplerOptions{1.0, 0, 1.0}, SamplerOptions{0.5, 0, 1.0}, SamplerOptions{2.0, 0, 1.0},
        SamplerOptions{1.0, 5, 1.0}, SamplerOptions{0.7, 20, 1.0}, SamplerOptions{1.0, 0, 0.9},
        SamplerOptions{1.3, 0, 0.5}, SamplerOptions{0.8, 12, 0.8}, SamplerOptions{1.0, 50, 0.3},
        SamplerOptions{1.0, 0, 0.001}}) {
    INFO(options.temperature << " " << options.top_k << " " << options.top_p);
    const auto [counts, probabilities] = count_draws(logits, options, drawable, 40000);
    for (size_t i = 0; i < counts.size(); ++i)
      if (probabilities[i] == 0.0) REQUIRE(counts[i] == 0);
    // Four deviations are exceeded once in 30,000 tests; the draws are deterministic.
    REQUIRE(chi_square_deviation(counts, probabilities, 40000) < 4.0);
  }
}

TEST_CASE("the chi-square statistic detects a slightly different temperature") {
  const std::vector<float> logits = random_logits(50, 1.5);
  const DrawableIds drawable(50, 1);
  const Counted counted = count_draws(logits, {1.0, 0, 1.0}, drawable, 40000);
  const std::vector<double> warmer = distribution(logits, {1.1, 0, 1.0}, drawable);
  REQUIRE(chi_square_deviation(counted.counts, warmer, 40000) > 10.0);
}

TEST_CASE("the frequencies are right for a large vocabulary too") {
  const std::vector<float> logits = random_logits(50257, 2.0);
  const DrawableIds drawable(logits.size(), 1);
  for (const SamplerOptions& options :
       {SamplerOptions{1.0, 0, 1.0}, SamplerOptions{1.0, 40, 1.0}, SamplerOptions{0.9, 0, 0.9}}) {
    INFO(options.temperature << " " << options.top_k << " " << options.top_p);
    const auto [counts, probabilities] = count_draws(logits, options, drawable, 300);
    int64_t impossible = 0;
    for (size_t i = 0; i < counts.size(); ++i)
      if (probabilities[i] == 0.0) impossible += counts[i];
    REQUIRE(impossible == 0);
    REQUIRE(chi_square_deviation(counts, probabilities, 300) < 4.0);
  }
}

TEST_CASE("equal scores are cut in the order of ids, and all are kept without a cut") {
  const std::vector<float> logits(1000, 0.25f);
  const DrawableIds drawable(logits.size(), 1);
  Sampler by_k({1.0, 10, 1.0}, drawable), by_p({1.0, 0, 0.01}, drawable),
      all({1.0, 0, 1.0}, drawable);
  for (int i = 0; i < 100; ++i) {
    const double uniform = (i + 0.5) / 100.0;
    REQUIRE(by_k.draw(logits, {}, uniform).id == i / 10);
    REQUIRE(by_p.draw(logits, {}, uniform).id == i / 10);
    REQUIRE(all.draw(logits, {}, uniform).id == i * 10 + 5);
  }
}

TEST_CASE(
    "temperature 0 takes the most probable id, the first one of equals, for any random number") {
  std::vector<float> logits = {9.0f, 1.0f, 3.0f, 3.0f};
  Sampler sampler({0.0, 0, 1.0}, {0, 1, 1, 1});
  for (const double uniform : {0.0, 0.5, 0.999999}) {
    REQUIRE(sampler.draw(logits, {}, uniform).id == 2);
    REQUIRE(sampler.draw(logits, std::vector<int32_t>{2}, uniform).id == 3);
    // A temperature too small for the arithmetic acts as 0.
    Sampler cold({1e-12, 0, 0.9}, {0, 1, 1, 1});
    REQUIRE(cold.draw(logits, {}, uniform).id == 2);
  }
}

TEST_CASE("a draw's log-probability is the model's own, independent of cuts and excluded ids") {
  const std::vector<float> logits = random_logits(300, 3.0);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  DrawableIds drawable(300, 1);
  drawable[5] = 0;
  Sampler sampler({0.5, 7, 0.9}, drawable);
  for (int i = 0; i < 50; ++i) {
    const DrawnToken draw = sampler.draw(logits, {}, (i + 0.5) / 50);
    REQUIRE(draw.log_probability ==
            Approx(static_cast<double>(logits[static_cast<size_t>(draw.id)]) - std::log(total))
                .margin(1e-6));
  }
}

TEST_CASE("scores of -infinity are never drawn; NaN, +infinity or no finite score is an error") {
  const float infinity = std::numeric_limits<float>::infinity();
  Sampler sampler({1.0, 0, 0.95}, {1, 1, 1});
  for (int i = 0; i < 100; ++i)
    REQUIRE(sampler.draw(std::vector<float>{-infinity, 0.0f, 1.0f}, {}, i / 100.0).id != 0);
  for (const float bad : {infinity, std::numeric_limits<float>::quiet_NaN()})
    REQUIRE_THAT(error_of([&] {
                   (void)sampler.draw(std::vector<float>{0.0f, bad, 1.0f}, {}, 0.5);
                 }),
                 Catch::Contains("no finite maximum") && Catch::Contains("diverged"));
  REQUIRE_THAT(error_of([&] {
                 (void)sampler.draw(std::vector<float>{0.0f, 1.0f, 1.0f},
                                    std::vector<int32_t>{0, 1, 2}, 0.5);
               }),
               Catch::Contains("none of 3 ids may be drawn"));
}

TEST_CASE("the best ids equal those of a full sort") {
  for (const int64_t size : {1, 3, 17, 1000, 50000})
    for (const int64_t k : {1, 2, 10, 999, 60000}) {
      INFO(size << " " << k);
      std::vector<float> scores = random_logits(size, 4.0, static_cast<uint64_t>(size));
      for (float& score : scores) score = std::round(score);  // Produces many ties.
      scores[0] = kNeverScore;
      std::vector<int32_t> expected(scores.size()), best;
      std::iota(expected.begin(), expected.end(), 0);
      std::erase(expected, 0);
      std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
        return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
      });
      if (std::ssize(expected) > k) expected.resize(static_cast<size_t>(k));
      top_ids(scores, k, &best);
      REQUIRE(best == expected);
    }
}

TEST_CASE("the random numbers of samples are uniform, and differ between samples") {
  const std::vector<int32_t> prompt = {1, 2, 3}, other = {1, 2, 4};
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < 20000; ++i) {
    const double uniform = sample_uniform(sample_key(5, prompt, 0), i);
    REQUIRE((uniform >= 0.0 && uniform < 1.0));
    sum += uniform;
    squares += uniform * uniform;
  }
  REQUIRE(sum / 20000 == Approx(0.5).margin(0.01));  // Five standard deviations of the mean.
  REQUIRE(squares / 20000 == Approx(1.0 / 3.0).margin(0.011));
  const uint64_t key = sample_key(5, prompt, 0);
  REQUIRE(key == sample_key(5, std::vector<int32_t>{1, 2, 3}, 0));
  REQUIRE(key != sample_key(5, prompt, 1));
  REQUIRE(key != sample_key(6, prompt, 0));
  REQUIRE(key != sample_key(5, other, 0));
}

}  // namespace
}  // namespace tessera
