// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/generation.h"

#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"
#include "tests/tasks/run/decode/decode_trial.h"

namespace tessera {
namespace {

struct Scored {
  std::vector<int32_t> ids;
  double log_probability = 0.0;
  double score = 0.0;
};

// All continuations that end in the stop token or have length `most`.
void enumerate(const std::vector<int32_t>& tokens, const Scored& so_far, int32_t stop,
               const DecodeHParams& p, const PrefixProgram::Sizes& sizes,
               std::vector<Scored>* all) {
  const auto probabilities = log_probabilities(PrefixProgram::logits_after(tokens, sizes));
  for (int32_t id = 0; id < sizes.vocab_size; ++id) {
    if (id == stop && std::ssize(so_far.ids) < p.min_decode_steps) continue;
    Scored next = so_far;
    next.ids.push_back(id);
    next.log_probability += probabilities[static_cast<size_t>(id)];
    const auto count = static_cast<double>(next.ids.size());
    next.score = next.log_probability / std::pow((5.0 + count) / 6.0, p.length_penalty);
    if (id == stop || std::ssize(next.ids) == p.max_decode_steps) {
      all->push_back(next);
      continue;
    }
    std::vector<int32_t> longer = tokens;
    longer.push_back(id);
    enumerate(longer, next, stop, p, sizes, all);
  }
}

std::vector<Scored> exhaustive(const std::vector<int32_t>& prompt, const DecodeHParams& p,
                               const PrefixProgram::Sizes& sizes) {
  std::vector<Scored> all;
  enumerate(prompt, {}, 2, p, sizes, &all);
  std::sort(all.begin(), all.end(),
            [](const Scored& a, const Scored& b) { return a.score > b.score; });
  return all;
}

DecodeHParams beam(int64_t size, int64_t best, int64_t most) {
  DecodeHParams p;
  p.strategy = DecodeStrategy::kBeam;
  p.beam_size = size;
  p.batch = size;
  p.num_samples = best;
  p.max_decode_steps = most;
  p.stop_tokens = {"2"};
  return p;
}

TEST_CASE("a wide enough beam finds all the best continuations in order of score") {
  const PrefixProgram::Sizes sizes{.rows = 81, .vocab_size = 4};
  for (const double penalty : {0.0, 0.6, 1.0, 3.0})
    for (const int64_t least : {0, 2})
      for (const int64_t wanted : {1, 20}) {
        DecodeHParams p = beam(81, wanted, 5);
        p.length_penalty = penalty;
        p.min_decode_steps = least;
        for (const std::vector<int32_t>& prompt : some_prompts(12, 4)) {
          const std::vector<Scored> best = exhaustive(prompt, p, sizes);
          const auto found = decode_with(sizes, p, {prompt}).front();
          REQUIRE(std::ssize(found) == wanted);
          for (size_t i = 0; i < found.size(); ++i) {
            INFO("penalty " << penalty << " min length " << least << " rank " << i);
            REQUIRE(found[i].ids == best[i].ids);
            REQUIRE(found[i].score == Approx(best[i].score).margin(1e-6));
            REQUIRE(found[i].log_probability == Approx(best[i].log_probability).margin(1e-6));
            REQUIRE((found[i].finish == Finish::kStopToken) == (best[i].ids.back() == 2));
          }
        }
      }
}

TEST_CASE("a narrow beam gives exact scores that are at least as good as greedy decoding") {
  const PrefixProgram::Sizes sizes{.rows = 12, .vocab_size = 6, .sharpness = 3.0};
  int64_t better = 0;
  for (const auto& prompt : some_prompts(20)) {
    DecodeHParams greedy = beam(1, 1, 8);
    greedy.length_penalty = 0.0;
    DecodeHParams wide = beam(4, 3, 8);
    wide.length_penalty = 0.0;
    const auto narrow = decode_with(sizes, greedy, {prompt}).front();
    const auto found = decode_with(sizes, wide, {prompt}).front();
    for (const DecodedSample& sample : found) {
      double expected = 0.0;
      std::vector<int32_t> tokens = prompt;
      for (const int32_t id : sample.ids) {
        expected +=
            log_probabilities(PrefixProgram::logits_after(tokens, sizes))[static_cast<size_t>(id)];
        tokens.push_back(id);
      }
      REQUIRE(sample.log_probability == Approx(expected).margin(1e-6));
      REQUIRE(sample.score == sample.log_probability);
    }
    REQUIRE(std::is_sorted(found.begin(), found.end(),
                           [](const auto& a, const auto& b) { return a.score > b.score; }));
    better += found[0].score > narrow[0].score + 1e-6 ? 1 : 0;
    REQUIRE(found[0].score > narrow[0].score - 1e-6);
  }
  REQUIRE(better > 2);
}

TEST_CASE("a larger length penalty favours longer continuations") {
  const PrefixProgram::Sizes sizes{.rows = 16, .vocab_size = 6};
  const auto tokens = [&](double penalty) {
    DecodeHParams p = beam(8, 1, 12);
    p.length_penalty = penalty;
    int64_t total = 0;
    for (const auto& samples : decode_with(sizes, p, some_prompts(20)))
      total += std::ssize(samples[0].ids);
    return total;
  };
  REQUIRE(tokens(0.0) < tokens(1.0));
  REQUIRE(tokens(1.0) < tokens(4.0));
}

TEST_CASE("the search ends as soon as no unfinished continuation can score better") {
  PrefixProgram program({.rows = 4, .cache_length = 2000, .sharpness = 4.0});
  DecodeHParams p = beam(4, 4, 1000);
  p.length_penalty = 0.0;
  (void)decode_with(program, p, some_prompts(5));
  REQUIRE(program.steps < 300);
  REQUIRE(program.reorders > 0);
}

TEST_CASE("a beam ends at a stop string and the other beams continue") {
  DecodeHParams p = beam(6, 6, 6);
  p.stop_tokens.clear();
  p.stop_strings = {"4 1"};
  const auto found = decode_with({.rows = 6}, p, some_prompts(12));
  int64_t stopped = 0, whole = 0;
  for (const auto& samples : found)
    for (const DecodedSample& sample : samples) {
      const std::vector<int32_t> stop = {4, 1};
      const auto at = std::search(sample.ids.begin(), sample.ids.end(), stop.begin(), stop.end());
      REQUIRE((sample.finish == Finish::kStopString) == (at != sample.ids.end()));
      REQUIRE(sample.text.find("4 1") == std::string::npos);
      if (at != sample.ids.end()) REQUIRE(at == sample.ids.end() - 2);
      ++(at != sample.ids.end() ? stopped : whole);
    }
  REQUIRE(stopped > 0);
  REQUIRE(whole > 0);
}

}  // namespace
}  // namespace tessera
