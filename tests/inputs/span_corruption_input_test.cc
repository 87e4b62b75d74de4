// SPDX-License-Identifier: Apache-2.0
#include "inputs/span_corruption_input.h"

#include <algorithm>
#include <set>

#include "inputs/synthetic_input.h"
#include "tests/support/catch.h"
#include "tests/support/hosts.h"

namespace tessera {
namespace {

using Catch::Contains;
using Ids = std::vector<int32_t>;

constexpr int32_t kFirst = 199, kEnd = 98, kStart = 97;  // Tokens are below 61.

SpanCorruptionInput::HParams hparams(int64_t batch = 16, int64_t seq_len = 64) {
  return {.input_tpl = SyntheticInput::HParams{.num_letters = 50, .score_all = true},
          .first_sentinel_id = kFirst,
          .end_id = kEnd,
          .start_id = kStart,
          .global_batch_size = batch,
          .seq_len = seq_len};
}

std::unique_ptr<BaseInput> opened(const Template<BaseInput>& p) {
  std::unique_ptr<BaseInput> input = p.instantiate();
  input->attach({});
  return input;
}

Ids row_of(const Batch& batch, const char* name, int64_t row) {
  const HostArray& array = batch.at(name);
  const int32_t* const first = array.data<int32_t>() + row * array.shape[1];
  return {first, first + array.shape[1]};
}

// The text of a row, put together again from both sequences.
Ids joined_text(const Ids& encoder, const Ids& labels) {
  Ids text;
  size_t at = 0;
  for (const int32_t id : encoder) {
    if (id == kEnd) break;
    if (id < 61) {
      text.push_back(id);
      continue;
    }
    REQUIRE(labels[at++] == id);
    while (labels[at] != kEnd && labels[at] != id - 1) text.push_back(labels[at++]);
  }
  REQUIRE(labels[at] == kEnd);
  return text;
}

TEST_CASE("both sequences have the lengths of T5, whatever is drawn") {
  auto p = hparams(4, 568);
  p.first_sentinel_id = 32099;
  const Batch batch = opened(p)->get_next().value();
  REQUIRE(batch.at("encoder_ids").shape == std::vector<int64_t>{4, 512});
  REQUIRE(batch.at("ids").shape == std::vector<int64_t>{4, 114});
  for (int64_t row = 0; row < 4; ++row) {
    const Ids segments = row_of(batch, "encoder_segment_ids", row);
    REQUIRE(std::ranges::count(segments, 1) == 512);
    REQUIRE(std::ranges::count(row_of(batch, "segment_ids", row), 1) == 114);
  }
  REQUIRE(opened(p)->vocab_size() == 32100);
}

TEST_CASE("the decoder's labels fill the gaps of what the encoder reads") {
  const auto input = opened(hparams());
  const auto plain = opened(SyntheticInput::HParams{
      .global_batch_size = 16, .seq_len = 64, .num_letters = 50, .score_all = true});
  REQUIRE(same_shapes(input->specification(), *input->peek()));
  std::set<Ids> places;
  for (int i = 0; i < 5; ++i) {
    const Batch batch = input->get_next().value(), original = plain->get_next().value();
    for (int64_t row = 0; row < 16; ++row) {
      const Ids encoder = row_of(batch, "encoder_ids", row), labels = row_of(batch, "labels", row);
      REQUIRE(joined_text(encoder, labels) == row_of(original, "labels", row));
      Ids shifted = row_of(batch, "ids", row);
      REQUIRE(shifted.front() == kStart);
      REQUIRE(std::equal(shifted.begin() + 1, shifted.end(), labels.begin()));
      REQUIRE(batch.at("label_bytes").data<float>()[row] == 0.0f);
      Ids sentinels;
      for (size_t at = 0; at < encoder.size(); ++at)
        if (encoder[at] > kFirst - 10) sentinels.push_back(static_cast<int32_t>(at));
      REQUIRE(sentinels.size() == 3);  // round(round(64·0.15) / 3)
      REQUIRE(sentinels.front() > 0);
      places.insert(sentinels);
    }
  }
  REQUIRE(places.size() > 70);  // There are 80 rows.
}

TEST_CASE("spans depend on the row's number and the seed only") {
  const auto sixteen = opened(hparams(16)), eight = opened(hparams(8));
  const Batch first = sixteen->get_next().value();
  const std::optional<Batch> peeked = sixteen->peek();
  REQUIRE(same_batch(peeked, sixteen->get_next()));
  InputState state = eight->state();
  state.position = 1;
  eight->restore(state);
  const Batch second = eight->get_next().value();
  for (int64_t row = 0; row < 8; ++row)
    REQUIRE(row_of(second, "encoder_ids", row) == row_of(first, "encoder_ids", row + 8));
  auto p = hparams(16);
  p.input_tpl.as<SyntheticInput::HParams>().seed = 1234;
  p.seed = 5;
  REQUIRE(opened(p)->get_next()->at("encoder_ids").bytes != first.at("encoder_ids").bytes);
}

TEST_CASE("an input of corrupted spans says what is wrong with its configuration") {
  const auto message = [](const SpanCorruptionInput::HParams& p) {
    return error_of([&] { Template<BaseInput>(p).instantiate(); });
  };
  auto p = hparams();
  p.first_sentinel_id = 1;
  REQUIRE_THAT(message(p), Contains("3 spans") && Contains("leaves ids for 2 sentinels"));
  p = hparams();
  p.mean_span_length = 0.5;
  REQUIRE_THAT(message(p), Contains("mean_span_length is 0.5, expected at least 1"));
  p = hparams();
  p.input_tpl = {};
  REQUIRE_THAT(message(p), Contains("SpanCorruptionInput: input_tpl is not set"));
}

}  // namespace
}  // namespace tessera
