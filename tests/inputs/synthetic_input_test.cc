// SPDX-License-Identifier: Apache-2.0
#include "inputs/synthetic_input.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Contains;

SyntheticInput::HParams hparams(SyntheticTask task) {
  SyntheticInput::HParams p;
  p.task = task;
  p.global_batch_size = 3;
  p.seq_len = 21;
  return p;
}

SyntheticInput::Sequence sequence(SyntheticTask task, int64_t index) {
  return SyntheticInput(hparams(task)).sequence(index);
}

// Tokens that copy the one `distance` before them, from `begin` on.
bool repeats(const std::vector<int32_t>& tokens, size_t begin, int64_t distance) {
  for (size_t i = begin + static_cast<size_t>(distance); i < tokens.size(); ++i)
    if (tokens[i] != tokens[i - static_cast<size_t>(distance)]) return false;
  return true;
}

TEST_CASE("a copied sequence repeats at the configured distance") {
  for (int64_t index = 0; index < 50; ++index) {
    const auto made = sequence(SyntheticTask::kCopy, index);
    REQUIRE(made.tokens.size() == 21);
    REQUIRE(repeats(made.tokens, 0, 4));
    REQUIRE(std::count(made.determined.begin(), made.determined.end(), true) == 17);
  }
}

TEST_CASE("a stated copy repeats at the distance given by its first token") {
  std::set<int64_t> distances;
  for (int64_t index = 0; index < 50; ++index) {
    const auto made = sequence(SyntheticTask::kStatedCopy, index);
    const int64_t distance = made.tokens[0] - 7 + 1;
    REQUIRE(repeats(made.tokens, 1, distance));
    distances.insert(distance);
  }
  REQUIRE(distances == std::set<int64_t>{1, 2, 3, 4});
}

TEST_CASE("a hidden copy repeats at some distance") {
  for (int64_t index = 0; index < 50; ++index) {
    const auto made = sequence(SyntheticTask::kHiddenCopy, index);
    REQUIRE((repeats(made.tokens, 0, 1) || repeats(made.tokens, 0, 2) ||
             repeats(made.tokens, 0, 3) || repeats(made.tokens, 0, 4)));
  }
}

TEST_CASE("a reversal is letters, a separator and the reversed letters") {
  const auto made = sequence(SyntheticTask::kReversal, 3);
  REQUIRE(made.tokens[10] == 6);
  for (size_t i = 0; i < 10; ++i) REQUIRE(made.tokens[20 - i] == made.tokens[i]);
  REQUIRE_FALSE(made.determined[9]);
  REQUIRE(made.determined[10]);
}

TEST_CASE("a mixed task is named first, and all tasks occur") {
  std::set<int32_t> tasks;
  for (int64_t index = 0; index < 100; ++index)
    tasks.insert(sequence(SyntheticTask::kMixed, index).tokens[0]);
  REQUIRE(tasks == std::set<int32_t>{1, 2, 3, 4, 5});
}

TEST_CASE("letters of the Gaussian mixture cluster around its three centres") {
  SyntheticInput::HParams p = hparams(SyntheticTask::kGaussians);
  p.num_letters = 40;
  p.seq_len = 20000;
  const auto made = SyntheticInput(p).sequence(0);
  std::vector<int> counts(40);
  for (int32_t token : made.tokens) ++counts[static_cast<size_t>(token - 11)];
  for (size_t centre : {10, 20, 30}) REQUIRE(counts[centre] > 2 * counts[centre - 5]);
}

TEST_CASE("only determined tokens are scored, unless score_all is set") {
  for (const bool score_all : {false, true}) {
    SyntheticInput::HParams p = hparams(SyntheticTask::kCopy);
    p.score_all = score_all;
    SyntheticInput input(p);
    input.attach({});
    const Batch batch = *input.get_next();
    const float* weights = batch.at("weights").data<float>();
    REQUIRE(weights[3] == (score_all ? 1.0f : 0.0f));
    REQUIRE(weights[4] == 1.0f);
    const int32_t* ids = batch.at("ids").data<int32_t>();
    const int32_t* labels = batch.at("labels").data<int32_t>();
    REQUIRE(ids[0] == 0);
    for (int i = 1; i < 21; ++i) REQUIRE(ids[i] == labels[i - 1]);
  }
}

TEST_CASE("sequences are a pure function of seed and index, and within the vocabulary") {
  SyntheticInput::HParams p = hparams(SyntheticTask::kMixed);
  p.num_batches = 20;
  SyntheticInput input(p);
  input.attach({});
  int64_t index = 0;
  while (const auto batch = input.get_next()) {
    const int32_t* labels = batch->at("labels").data<int32_t>();
    const float* paddings = batch->at("paddings").data<float>();
    for (int64_t row = 0; row < 3; ++row, ++index) {
      const auto tokens = sequence(SyntheticTask::kMixed, index).tokens;
      REQUIRE(std::equal(tokens.begin(), tokens.end(), labels + row * 21));
      // A reversal may be one shorter than the row.
      REQUIRE(tokens.size() >= 20);
      REQUIRE(paddings[row * 21 + 20] == (tokens.size() == 20 ? 1.0f : 0.0f));
    }
    for (int i = 0; i < 63; ++i) REQUIRE((labels[i] >= 0 && labels[i] < input.vocab_size()));
  }
  REQUIRE(index == 60);
  p.seed = 7;
  REQUIRE(SyntheticInput(p).sequence(0).tokens != sequence(SyntheticTask::kMixed, 0).tokens);
}

TEST_CASE("the first sequence never changes, since recorded losses depend on it") {
  const std::vector<int32_t> tokens = sequence(SyntheticTask::kCopy, 0).tokens;
  CAPTURE(tokens);
  REQUIRE(std::vector<int32_t>(tokens.begin(), tokens.begin() + 4) ==
          std::vector<int32_t>{13, 11, 20, 14});
}

TEST_CASE("a distance that does not fit is refused") {
  SyntheticInput::HParams p = hparams(SyntheticTask::kCopy);
  p.distance = 21;
  REQUIRE_THROWS_WITH(SyntheticInput(p),
                      Contains("distance is 21; expected 1 to seq_len - 1 = 20"));
}

}  // namespace
}  // namespace tessera
