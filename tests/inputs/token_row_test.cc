// SPDX-License-Identifier: Apache-2.0
// The packing conventions, by examples written out by hand.
#include "inputs/token_row.h"

#include <vector>

#include "inputs/flat_tokens_file.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr bool kStart = true;

struct Row {
  explicit Row(int64_t seq_len) : batch(make_token_batch(1, seq_len)) {}
  template <typename T>
  std::vector<T> get(const char* name) const {
    const HostArray& array = batch.at(name);
    return {array.data<T>(), array.data<T>() + array.shape[1]};
  }
  std::vector<int32_t> ids() const { return get<int32_t>("ids"); }
  std::vector<int32_t> labels() const { return get<int32_t>("labels"); }
  std::vector<float> weights() const { return get<float>("weights"); }
  std::vector<float> paddings() const { return get<float>("paddings"); }
  std::vector<int32_t> segment_ids() const { return get<int32_t>("segment_ids"); }
  std::vector<int32_t> segment_pos() const { return get<int32_t>("segment_pos"); }
  Batch batch;
};

using Ints = std::vector<int32_t>;
using Floats = std::vector<float>;

// The end of one document (11 12), a whole one (21 22 23) and the beginning of a third (31).
const std::vector<uint32_t> kTokens = {encode_token(11, !kStart), encode_token(12, !kStart),
                                       encode_token(21, kStart),  encode_token(22, !kStart),
                                       encode_token(23, !kStart), encode_token(31, kStart)};

TEST_CASE("shifted right, a row's tokens are its labels and ids begin anew in each document") {
  Row row(6);
  fill_row(Labels::kShiftRight, kTokens, token_row(row.batch, 0));
  REQUIRE(row.labels() == Ints{11, 12, 21, 22, 23, 31});
  REQUIRE(row.ids() == Ints{0, 11, 0, 21, 22, 0});
  REQUIRE(row.weights() == Floats{1, 1, 1, 1, 1, 1});
  REQUIRE(row.paddings() == Floats{0, 0, 0, 0, 0, 0});
  REQUIRE(row.segment_ids() == Ints{1, 1, 2, 2, 2, 3});
  REQUIRE(row.segment_pos() == Ints{0, 1, 0, 1, 2, 0});
}

TEST_CASE("next-token labels reach one token beyond the row and count within documents only") {
  Row row(5);
  fill_row(Labels::kNextToken, kTokens, token_row(row.batch, 0));
  REQUIRE(row.ids() == Ints{11, 12, 21, 22, 23});
  REQUIRE(row.labels() == Ints{12, 21, 22, 23, 31});
  REQUIRE(row.weights() == Floats{1, 0, 1, 1, 0});
  REQUIRE(row.paddings() == Floats{0, 0, 0, 0, 0});
  REQUIRE(row.segment_ids() == Ints{1, 1, 2, 2, 2});
  REQUIRE(row.segment_pos() == Ints{0, 1, 0, 1, 2});
}

TEST_CASE("what the tokens do not fill is padding that weighs nothing") {
  Row row(4);
  fill_row(Labels::kShiftRight, std::span(kTokens).subspan(2, 2), token_row(row.batch, 0));
  REQUIRE(row.labels() == Ints{21, 22, 0, 0});
  REQUIRE(row.ids() == Ints{0, 21, 0, 0});
  REQUIRE(row.weights() == Floats{1, 1, 0, 0});
  REQUIRE(row.paddings() == Floats{0, 0, 1, 1});
  REQUIRE(row.segment_ids() == Ints{1, 1, 0, 0});
  REQUIRE(row.segment_pos() == Ints{0, 1, 0, 0});
}

TEST_CASE("a single token leaves nothing to predict of the next one") {
  Row row(2);
  fill_row(Labels::kNextToken, std::span(kTokens).first(1), token_row(row.batch, 0));
  REQUIRE(row.weights() == Floats{0, 0});
  REQUIRE(row.segment_ids() == Ints{0, 0});
}

TEST_CASE("a batch says what its arrays are") {
  const Batch batch = token_batch_specification(3, 5);
  REQUIRE(batch.size() == 7);
  REQUIRE(batch.at("ids").dtype == DType::kI32);
  REQUIRE(batch.at("weights").dtype == DType::kF32);
  REQUIRE(batch.at("labels").axes == std::vector<std::string>{"batch", "seq"});
  REQUIRE(batch.at("segment_pos").shape == std::vector<int64_t>{3, 5});
  REQUIRE(batch.at("eval_sample_weights").shape == std::vector<int64_t>{3});
  REQUIRE(batch.at("ids").bytes.empty());
}

}  // namespace
}  // namespace tessera
