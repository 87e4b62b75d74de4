// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/decoder.h"

#include <algorithm>
#include <csignal>
#include <numeric>

#include "tests/support/catch.h"
#include "tests/support/trial.h"
#include "tests/tasks/run/decode/decode_trial.h"

namespace tessera {
namespace {

void require_same(const std::vector<DecodedSample>& a, const std::vector<DecodedSample>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].ids == b[i].ids);
    REQUIRE(a[i].text == b[i].text);
    REQUIRE(a[i].log_probability == b[i].log_probability);
    REQUIRE(a[i].score == b[i].score);
    REQUIRE(a[i].finish == b[i].finish);
  }
}

// The reference: decodes one token at a time, each from the whole prefix.
DecodedSample by_hand(const std::vector<int32_t>& prompt, int64_t sample, const DecodeHParams& p,
                      const std::vector<int32_t>& stops, const PrefixProgram::Sizes& sizes) {
  Sampler sampler({p.strategy == DecodeStrategy::kGreedy ? 0.0 : p.temperature, p.top_k, p.top_p},
                  DrawableIds(static_cast<size_t>(sizes.vocab_size), 1));
  const uint64_t key = sample_key(static_cast<uint64_t>(p.seed), prompt, sample);
  DecodedSample result;
  std::vector<int32_t> tokens = prompt;
  while (std::ssize(result.ids) < p.max_decode_steps) {
    const int64_t number = std::ssize(result.ids);
    const std::vector<int32_t> none;
    const DrawnToken draw =
        sampler.draw(PrefixProgram::logits_after(tokens, sizes),
                     number < p.min_decode_steps ? stops : none, sample_uniform(key, number));
    result.ids.push_back(draw.id);
    tokens.push_back(draw.id);
    result.log_probability += draw.log_probability;
    if (number >= p.min_decode_steps &&
        std::find(stops.begin(), stops.end(), draw.id) != stops.end()) {
      result.finish = Finish::kStopToken;
      return result;
    }
  }
  return result;
}

TEST_CASE("decoding in a batch gives the same tokens as decoding each prompt alone") {
  for (const DecodeStrategy strategy : {DecodeStrategy::kGreedy, DecodeStrategy::kSample})
    for (const int64_t rows : {1, 3, 8}) {
      INFO(enum_name(strategy) << " " << rows);
      const PrefixProgram::Sizes sizes{.rows = rows};
      DecodeHParams p;
      p.strategy = strategy;
      p.temperature = 1.3;
      p.top_k = 5;
      p.max_decode_steps = 12;
      p.min_decode_steps = 3;
      p.num_samples = 3;
      p.stop_tokens = {"2"};
      const Prompts prompts = some_prompts(13);
      const auto results = decode_with(sizes, p, prompts);
      int64_t stopped = 0;
      for (size_t i = 0; i < prompts.size(); ++i)
        for (int64_t sample = 0; sample < 3; ++sample) {
          const DecodedSample& got = results[i][static_cast<size_t>(sample)];
          const DecodedSample expected = by_hand(prompts[i], sample, p, {2}, sizes);
          INFO("prompt " << i << " sample " << sample);
          REQUIRE(got.ids == expected.ids);
          REQUIRE(got.finish == expected.finish);
          REQUIRE(got.log_probability == expected.log_probability);
          REQUIRE(got.score == got.log_probability);
          stopped += got.finish == Finish::kStopToken ? 1 : 0;
        }
      REQUIRE(stopped > 0);
    }
}

TEST_CASE("a sample depends on seed and prompt, not on its batch, row or the other prompts") {
  const Prompts prompts = some_prompts(17);
  for (const DecodeStrategy strategy : {DecodeStrategy::kSample, DecodeStrategy::kBeam}) {
    INFO(enum_name(strategy));
    DecodeHParams p;
    p.strategy = strategy;
    p.temperature = 1.0;
    p.beam_size = 3;
    p.num_samples = 2;
    p.max_decode_steps = 10;
    p.stop_tokens = {"1"};
    const auto expected = decode_with({.rows = 8}, p, prompts);
    for (const int64_t rows : {3, 4, 11, 60}) {
      INFO("rows " << rows);
      const auto results = decode_with({.rows = rows}, p, prompts);
      for (size_t i = 0; i < prompts.size(); ++i) require_same(results[i], expected[i]);
    }
    Prompts backwards(prompts.rbegin(), prompts.rend());
    backwards.push_back(prompts[4]);  // This prompt occurs twice.
    const auto reversed = decode_with({.rows = 8}, p, backwards);
    for (size_t i = 0; i < prompts.size(); ++i)
      require_same(reversed[prompts.size() - 1 - i], expected[i]);
    require_same(reversed.back(), expected[4]);
    for (const size_t i : {0u, 9u})
      require_same(decode_with({.rows = 8}, p, {prompts[i]}).front(), expected[i]);
    DecodeHParams other = p;
    other.seed = p.seed + 1;
    const bool same = decode_with({.rows = 8}, other, prompts)[3][0].ids == expected[3][0].ids;
    REQUIRE(same == (strategy == DecodeStrategy::kBeam));
  }
}

TEST_CASE("samples of one prompt differ, and num_samples does not change the first ones") {
  DecodeHParams p;
  p.temperature = 1.0;
  p.max_decode_steps = 16;
  p.num_samples = 2;
  const auto two = decode_with({}, p, {{1, 2}}).front();
  p.num_samples = 7;
  const auto seven = decode_with({}, p, {{1, 2}}).front();
  REQUIRE(two[0].ids != two[1].ids);
  require_same({seven[0], seven[1]}, two);
}

TEST_CASE("finished rows take the next prompts, and prefill waits until several rows are free") {
  PrefixProgram program({.rows = 8, .cache_length = 200});
  DecodeHParams p;
  p.strategy = DecodeStrategy::kSample;
  p.temperature = 1.0;
  p.max_decode_steps = 60;
  p.stop_tokens = {"0"};
  const Prompts prompts = some_prompts(64);
  const auto results = decode_with(program, p, prompts);
  int64_t tokens = 0, longest = 0;
  for (const auto& samples : results) {
    tokens += std::ssize(samples[0].ids);
    longest = std::max(longest, std::ssize(samples[0].ids));
  }
  // In static batches of eight, each batch would take as many steps as its longest sample.
  REQUIRE(program.steps < tokens / 8 * 2);
  REQUIRE(program.steps >= tokens / 8 - longest);
  // A prompt has up to three chunks, and at least two prompts are read together.
  REQUIRE(program.prefills <= 3 * 64 / 2);
}

TEST_CASE("stop tokens are suppressed up to the minimum length, and are in ids but not in text") {
  DecodeHParams p;
  p.temperature = 1.5;
  p.stop_tokens = {"0", "3", "4"};
  p.max_decode_steps = 20;
  for (const int64_t least : {0, 1, 6}) {
    p.min_decode_steps = least;
    for (const auto& samples : decode_with({}, p, some_prompts(20))) {
      const std::vector<int32_t>& ids = samples[0].ids;
      REQUIRE(std::ssize(ids) > least);
      const auto stop = std::find_if(ids.begin(), ids.end(),
                                     [](int32_t id) { return id == 0 || id == 3 || id == 4; });
      REQUIRE(stop - ids.begin() >= least);
      if (samples[0].finish == Finish::kLength) continue;
      REQUIRE(stop == ids.end() - 1);
      // "1 2 5" without the last token.
      REQUIRE(std::ssize(samples[0].text) == std::max<int64_t>(0, 2 * std::ssize(ids) - 3));
    }
  }
}

TEST_CASE("a stop string ends the text before it, also if it spans tokens") {
  DecodeHParams p;
  p.temperature = 1.0;
  p.max_decode_steps = 40;
  const auto whole = decode_with({}, p, some_prompts(10));
  p.stop_strings = {"2 1", "never there"};
  const auto cut = decode_with({}, p, some_prompts(10));
  int64_t stopped = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    const size_t at = whole[i][0].text.find("2 1");
    REQUIRE(cut[i][0].text == whole[i][0].text.substr(0, at));
    REQUIRE((cut[i][0].finish == Finish::kStopString) == (at != std::string::npos));
    if (at == std::string::npos) continue;
    ++stopped;
    // The ids are exactly the drawn tokens.
    REQUIRE(std::ssize(cut[i][0].ids) == static_cast<int64_t>(at) / 2 + 2);
  }
  REQUIRE(stopped > 3);
}

TEST_CASE(
    "the longest prompt that fits the cache is decoded; a longer one is rejected or truncated") {
  const PrefixProgram::Sizes sizes{.rows = 2, .cache_length = 20};
  DecodeHParams p;
  p.temperature = 1.0;
  p.max_decode_steps = 5;
  std::vector<int32_t> prompt(16);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 6);
  REQUIRE(decode_with(sizes, p, {prompt}).front().front().ids.size() == 5);
  std::vector<int32_t> longer = prompt;
  longer.insert(longer.begin(), {3, 3, 1});
  REQUIRE(error_of([&] {
            decode_with(sizes, p, {{1}, longer});
          }) ==
          "prompt 2 has 19 tokens; with max_decode_steps=5 a cache of 20 tokens has room for 16. "
          "Set task.decode.cache_length=23, decode fewer steps, or set "
          "task.decode.long_prompts=truncate, which drops the beginning of a prompt");
  p.long_prompts = LongPrompts::kTruncate;
  require_same(decode_with(sizes, p, {longer}).front(), decode_with(sizes, p, {prompt}).front());
}

// Like by_hand, with a window: when it is full, the older half is dropped.
std::vector<int32_t> by_hand_forgetting(const std::vector<int32_t>& prompt, const DecodeHParams& p,
                                        const PrefixProgram::Sizes& sizes) {
  Sampler sampler({p.temperature, p.top_k, p.top_p},
                  DrawableIds(static_cast<size_t>(sizes.vocab_size), 1));
  const uint64_t key = sample_key(static_cast<uint64_t>(p.seed), prompt, 0);
  std::vector<int32_t> seen = prompt, drawn;
  while (std::ssize(drawn) < p.max_decode_steps) {
    if (std::ssize(seen) > p.window) seen.erase(seen.begin(), seen.end() - p.window / 2);
    const double uniform = sample_uniform(key, std::ssize(drawn));
    drawn.push_back(sampler.draw(PrefixProgram::logits_after(seen, sizes), {}, uniform).id);
    seen.push_back(drawn.back());
  }
  return drawn;
}

TEST_CASE(
    "a full row drops the older half of its window and continues, independent of other rows") {
  DecodeHParams p;
  p.temperature = 1.0;
  p.window = 6;
  p.max_decode_steps = 40;
  const Prompts prompts = {{1, 2, 3}, {4}, {5, 4, 3, 1, 2, 3}, {2, 2}, {3, 1, 5, 4, 3}};
  for (const int64_t rows : {1, 2, 5}) {
    const PrefixProgram::Sizes sizes{.rows = rows, .cache_length = p.window};
    const auto results = decode_with(sizes, p, prompts);
    for (size_t i = 0; i < prompts.size(); ++i) {
      INFO("rows " << rows << " prompt " << i);
      REQUIRE(results[i][0].ids == by_hand_forgetting(prompts[i], p, sizes));
    }
  }
  const PrefixProgram::Sizes sizes{.rows = 2, .cache_length = p.window};
  REQUIRE_THROWS_WITH(decode_with(sizes, p, {{1, 2, 3, 4, 5, 1, 2}}),
                      Catch::Contains("prompt 1 has 7 tokens, but attention covers only 6"));
}

TEST_CASE("invalid values of task.decode are rejected with the field's name") {
  const auto message = [](auto change) {
    DecodeHParams p;
    change(p);
    return error_of([&] {
      check_values(to_tree(p), "task.decode");
      check(p);
    });
  };
  REQUIRE(message([](DecodeHParams&) {}) == "no error");
  REQUIRE(
      message([](DecodeHParams& p) { p.temperature = -0.5; }) ==
      "task.decode: temperature is -0.5, expected at least 0 (divides the logits of samples; 0: "
      "greedy)");
  REQUIRE_THAT(message([](DecodeHParams& p) { p.top_p = 1.5; }),
               Catch::StartsWith("task.decode: top_p is 1.5, expected above 0 and at most 1"));
  REQUIRE(message([](DecodeHParams& p) { p.top_p = 0.0; }) != "no error");
  REQUIRE_THAT(message([](DecodeHParams& p) { p.top_k = -1; }),
               Catch::StartsWith("task.decode: top_k is -1, expected 0 to"));
  REQUIRE(message([](DecodeHParams& p) { p.beam_size = 9; }) == "no error");  // Unused.
  REQUIRE(message([](DecodeHParams& p) {
            p.beam_size = 9;
            p.strategy = DecodeStrategy::kBeam;
          }) ==
          "task.decode.beam_size is 9, more than the 8 rows decoded at once; set "
          "task.decode.batch to at least 9");
  REQUIRE(message([](DecodeHParams& p) {
            p.num_samples = 5;
            p.strategy = DecodeStrategy::kBeam;
          }) == "task.decode.num_samples is 5, but a beam search gives at most beam_size = 4");
  REQUIRE(message([](DecodeHParams& p) { p.min_decode_steps = 200; }) ==
          "task.decode.min_decode_steps is 200, more than max_decode_steps (128)");
  REQUIRE_THAT(message([](DecodeHParams& p) { p.max_decode_steps = 0; }),
               Catch::StartsWith("task.decode: max_decode_steps is 0, expected 1 to"));
  REQUIRE(message([](DecodeHParams& p) { p.cache_length = 100; }) ==
          "task.decode.max_decode_steps is 128, but the cache of a row holds only 100 "
          "tokens (cache_length) for its prompt and continuation");
  REQUIRE(message([](DecodeHParams& p) { p.stop_strings = {""}; }) ==
          "task.decode.stop_strings has an empty string, which matches everywhere; remove it");
}

// A program that is asked to stop during its third step.
class Stopped final : public BaseDecodeProgram {
 public:
  int64_t rows() const override { return inner_.rows(); }
  int64_t cache_length() const override { return inner_.cache_length(); }
  int64_t vocab_size() const override { return inner_.vocab_size(); }
  int64_t prefill_chunk() const override { return inner_.prefill_chunk(); }
  std::span<const float> prefill(std::span<const RowTokens> rows) override {
    return inner_.prefill(rows);
  }
  std::span<const float> step(std::span<const RowTokens> rows) override {
    if (++steps == 3) std::raise(SIGUSR2);
    return inner_.step(rows);
  }
  void reorder(std::span<const int32_t> parents) override { inner_.reorder(parents); }

  int64_t steps = 0;

 private:
  PrefixProgram inner_{{}};
};

TEST_CASE("a stop signal ends decoding between two tokens, and the decoder can be used again") {
  Stopped program;
  const PromptText text(nullptr, program.vocab_size());
  const DecodeHParams p{.strategy = DecodeStrategy::kGreedy, .max_decode_steps = 9};
  Decoder decoder(program, p, text);
  const Prompts prompts = some_prompts(6);
  {
    const StopSignal stop;
    REQUIRE(decoder.decode(prompts, &stop)[0][0].ids.empty());
    REQUIRE(program.steps == 3);
  }
  const auto again = decoder.decode(prompts), expected = decode_with({}, p, prompts);
  for (size_t i = 0; i < prompts.size(); ++i) REQUIRE(again[i][0].ids == expected[i][0].ids);
}

}  // namespace
}  // namespace tessera
