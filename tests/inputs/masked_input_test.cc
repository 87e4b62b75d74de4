// SPDX-License-Identifier: Apache-2.0
#include "inputs/masked_input.h"

#include <cmath>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/mixture/mixture_input.h"
#include "inputs/synthetic_input.h"
#include "tests/support/catch.h"
#include "tests/support/hosts.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr int32_t kMask = 0;  // No token of synthetic sequences.

MaskedInput::HParams hparams(int64_t batch = 16, int64_t seq_len = 64) {
  return {.input_tpl = SyntheticInput::HParams{.num_letters = 50, .score_all = true},
          .mask_id = kMask,
          .global_batch_size = batch,
          .seq_len = seq_len};
}

std::unique_ptr<BaseInput> opened(const MaskedInput::HParams& p, const Infeed& infeed = {}) {
  std::unique_ptr<BaseInput> input = Template<BaseInput>(p).instantiate();
  input->attach(infeed);
  return input;
}

// Counts of positions of some batches, by their treatment.
struct Counts {
  double tokens = 0, masked = 0, changed = 0, kept = 0;
  double chosen() const { return masked + changed + kept; }
};

Counts counts_of(BaseInput& input, int batches) {
  Counts counts;
  for (int i = 0; i < batches; ++i) {
    Batch batch = input.get_next().value();
    const int64_t rows = batch.at("ids").shape[0];
    for (int64_t r = 0; r < rows; ++r) {
      const TokenRow row = token_row(batch, r);
      REQUIRE(*row.label_bytes == 0.0f);
      for (size_t j = 0; j < row.ids.size(); ++j) {
        ++counts.tokens;
        REQUIRE(row.labels[j] != kMask);
        if (row.weights[j] == 0.0f) {
          REQUIRE(row.ids[j] == row.labels[j]);
          continue;
        }
        REQUIRE(row.weights[j] == 1.0f);
        ++(row.ids[j] == kMask           ? counts.masked
           : row.ids[j] == row.labels[j] ? counts.kept
                                         : counts.changed);
      }
    }
  }
  return counts;
}

// Four standard deviations of a mean of `trials` draws.
double margin(double rate, double trials) { return 4.0 * std::sqrt(rate * (1 - rate) / trials); }

TEST_CASE("15 % of tokens are chosen: of these, 80 % are masked and 10 % random",
          "[masked_input]") {
  const auto input = opened(hparams());
  const Counts counts = counts_of(*input, 100);
  REQUIRE(counts.tokens == 102'400);
  REQUIRE(counts.chosen() / counts.tokens == Approx(0.15).margin(margin(0.15, counts.tokens)));
  // A random token is sometimes the mask token or the original one.
  const double same = 1.0 / static_cast<double>(input->vocab_size());
  const double margin_of_chosen = margin(0.8, counts.chosen());
  REQUIRE(counts.masked / counts.chosen() == Approx(0.8 + 0.1 * same).margin(margin_of_chosen));
  REQUIRE(counts.kept / counts.chosen() ==
          Approx(0.1 + 0.1 * same).margin(margin(0.1, counts.chosen())));
}

TEST_CASE("the rates of masking can be set", "[masked_input]") {
  MaskedInput::HParams p = hparams();
  p.chosen_rate = 1.0;
  p.mask_rate = 1.0;
  p.random_rate = 0.0;
  Counts counts = counts_of(*opened(p), 2);
  REQUIRE(counts.masked == counts.tokens);
  p.chosen_rate = 0.0;
  REQUIRE(counts_of(*opened(p), 2).chosen() == 0.0);
  p.chosen_rate = 0.5;
  p.mask_rate = 0.0;
  counts = counts_of(*opened(p), 20);
  REQUIRE(counts.kept == counts.chosen());
  REQUIRE(counts.kept / counts.tokens == Approx(0.5).margin(margin(0.5, counts.tokens)));
}

TEST_CASE("masks depend on the row's number and the seed only", "[masked_input]") {
  const auto sixteen = opened(hparams(16));
  const Batch first = sixteen->get_next().value();
  const std::optional<Batch> peeked = sixteen->peek();
  REQUIRE(same_batch(peeked, sixteen->get_next()));
  // Equal rows come in batches of half the size, from the second batch on.
  const auto eight = opened(hparams(8));
  InputState state = eight->state();
  state.position = 1;
  eight->restore(state);
  const Batch second = eight->get_next().value();
  const int32_t* ids = first.at("ids").data<int32_t>();
  REQUIRE(std::equal(ids + 8 * 64, ids + 16 * 64, second.at("ids").data<int32_t>()));

  MaskedInput::HParams p = hparams(16);
  p.input_tpl.as<SyntheticInput::HParams>().seed = 1234;
  p.seed = 5;
  const auto other = opened(p)->get_next();
  REQUIRE(other->at("labels").bytes == first.at("labels").bytes);
  REQUIRE(other->at("weights").bytes != first.at("weights").bytes);
}

TEST_CASE("masks differ between epochs and repeat after a reset", "[masked_input]") {
  MaskedInput::HParams p = hparams(16);
  p.input_tpl.as<SyntheticInput::HParams>().num_batches = 3;
  const auto input = opened(p);
  const auto batch = input->get_next();
  const auto next = input->get_next();
  REQUIRE(batch->at("weights").bytes != next->at("weights").bytes);
  input->reset();
  REQUIRE(same_batch(input->get_next(), batch));
  REQUIRE(same_batch(input->get_next(), next));
  REQUIRE(input->get_next());
  REQUIRE_FALSE(input->get_next());
  REQUIRE_FALSE(input->peek());
}

TEST_CASE("tokens without a loss weight and padding are never chosen", "[masked_input]") {
  MaskedInput::HParams p = hparams(16);
  p.input_tpl.as<SyntheticInput::HParams>().score_all = false;
  p.chosen_rate = 1.0;
  p.mask_rate = 1.0;
  p.random_rate = 0.0;
  const Template<BaseInput> plain_tpl =
      SyntheticInput::HParams{.global_batch_size = 16, .seq_len = 64, .num_letters = 50};
  const auto plain = plain_tpl.instantiate();
  plain->attach({});
  const Batch masked = opened(p)->get_next().value(), original = plain->get_next().value();
  REQUIRE(masked.at("weights").bytes == original.at("weights").bytes);
  for (int64_t i = 0; i < 16 * 64; ++i) {
    const bool counts = original.at("weights").data<float>()[i] > 0.0f;
    const int32_t label = original.at("labels").data<int32_t>()[i];
    REQUIRE(masked.at("ids").data<int32_t>()[i] == (counts ? kMask : label));
  }
}

TEST_CASE("a mask token may be beyond the vocabulary, and random tokens stay within it",
          "[masked_input]") {
  MaskedInput::HParams p = hparams();
  p.mask_id = 1000;
  p.chosen_rate = 1.0;
  p.mask_rate = 0.5;
  p.random_rate = 0.5;
  const auto input = opened(p);
  REQUIRE(input->vocab_size() == 1001);
  const Batch batch = input->get_next().value();
  int32_t largest = 0;
  for (int64_t i = 0; i < 16 * 64; ++i) {
    const int32_t id = batch.at("ids").data<int32_t>()[i];
    if (id != 1000) largest = std::max(largest, id);
  }
  REQUIRE(largest == 60);  // 61 tokens: 50 letters, four distances, six others and id 0.
}

TEST_CASE("a masked input says what is wrong with its configuration", "[masked_input]") {
  const auto message = [](const MaskedInput::HParams& p) -> std::string {
    try {
      Template<BaseInput>(p).instantiate();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  MaskedInput::HParams p = hparams();
  REQUIRE(message(p).empty());
  p.chosen_rate = 1.5;
  REQUIRE_THAT(message(p), Contains("chosen_rate is 1.5, expected 0 to 1"));
  p = hparams();
  p.random_rate = 0.3;
  REQUIRE_THAT(message(p), Contains("mask_rate + random_rate is 1.1"));
  p = hparams();
  p.mask_id = -1;
  REQUIRE_THAT(message(p), Contains("mask_id is -1, expected at least 0"));
  p = hparams();
  p.input_tpl = {};
  REQUIRE_THAT(message(p), Contains("input_tpl is not set"));
  p.input_tpl = MixtureInput::HParams{.sources = {{"a", FlatTokensInput::HParams{.path = "a.h5"}}},
                                      .weights = {{"a", 1.0}}};
  REQUIRE_THAT(message(p), Contains("set input_tpl.labels=shift_right"));
  p.input_tpl = FlatTokensInput::HParams{.path = "a.h5", .labels = Labels::kOneSegment};
  REQUIRE_THAT(message(p), Contains("set input_tpl.labels=shift_right"));
}

}  // namespace
}  // namespace tessera
