// SPDX-License-Identifier: Apache-2.0
// Times the choice of a token from the scores of a vocabulary (ninja bench_sampler). Scores are
// normal with a standard deviation of 3, similar to those of a trained model.
#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/format.h>

#include "core/base/random.h"
#include "tasks/run/decode/sampler.h"

namespace tessera {
namespace {

std::vector<float> scores(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; i += 4)
    for (const float normal : normals_from_block(philox(1, static_cast<uint64_t>(i), 0)))
      values.push_back(3.0f * normal);
  values.resize(static_cast<size_t>(count));
  return values;
}

// Microseconds per draw, the best of several rounds.
double measure(const SamplerOptions& options, const std::vector<float>& logits) {
  constexpr int kRounds = 300, kDraws = 2;
  Sampler sampler(options, DrawableIds(logits.size(), 1));
  double best = 1e300;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kDraws; ++i)
      (void)sampler.draw(logits, {}, sample_uniform(7, round * kDraws + i));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::min(best, seconds.count() * 1e6 / kDraws);
  }
  return best;
}

void run() {
  fmt::print("{:>10} {:>12} {:>9} {:>9} {:>9} {:>9}   microseconds a token\n", "vocabulary",
             "temperature", "greedy", "all", "top_k=40", "top_p=.9");
  for (const int64_t vocabulary : {257, 32000, 50257, 128256})
    for (const double temperature : {0.8, 1.5}) {
      const std::vector<float> logits = scores(vocabulary);
      fmt::print("{:>10} {:>12} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", vocabulary, temperature,
                 measure({0.0, 0, 1.0}, logits), measure({temperature, 0, 1.0}, logits),
                 measure({temperature, 40, 1.0}, logits), measure({temperature, 0, 0.9}, logits));
    }
}

}  // namespace
}  // namespace tessera

int main() { tessera::run(); }
