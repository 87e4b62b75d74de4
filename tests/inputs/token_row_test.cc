// SPDX-License-Identifier: Apache-2.0
// The packing conventions, by hand-written examples.
#include "inputs/token_row.h"

#include <random>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_file.h"
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

TEST_CASE("shifted right, a row's tokens are its labels, and ids start over in each document") {
  Row row(6);
  fill_row(Labels::kShiftRight, kTokens, token_row(row.batch, 0));
  REQUIRE(row.labels() == Ints{11, 12, 21, 22, 23, 31});
  REQUIRE(row.ids() == Ints{0, 11, 0, 21, 22, 0});
  REQUIRE(row.weights() == Floats{1, 1, 1, 1, 1, 1});
  REQUIRE(row.paddings() == Floats{0, 0, 0, 0, 0, 0});
  REQUIRE(row.segment_ids() == Ints{1, 1, 2, 2, 2, 3});
  REQUIRE(row.segment_pos() == Ints{0, 1, 0, 1, 2, 0});
}

TEST_CASE("next-token labels extend one token past the row and count within documents only") {
  Row row(5);
  fill_row(Labels::kNextToken, kTokens, token_row(row.batch, 0));
  REQUIRE(row.ids() == Ints{11, 12, 21, 22, 23});
  REQUIRE(row.labels() == Ints{12, 21, 22, 23, 31});
  REQUIRE(row.weights() == Floats{1, 0, 1, 1, 0});
  REQUIRE(row.paddings() == Floats{0, 0, 0, 0, 0});
  REQUIRE(row.segment_ids() == Ints{1, 1, 2, 2, 2});
  REQUIRE(row.segment_pos() == Ints{0, 1, 0, 1, 2});
}

TEST_CASE("labels in the row count across documents, in one segment or in one for each") {
  Row row(7);
  fill_row(Labels::kNextInRow, kTokens, token_row(row.batch, 0));
  REQUIRE(row.ids() == Ints{11, 12, 21, 22, 23, 31, 0});
  REQUIRE(row.labels() == Ints{12, 21, 22, 23, 31, 0, 0});
  REQUIRE(row.weights() == Floats{1, 1, 1, 1, 1, 0, 0});
  REQUIRE(row.paddings() == Floats{0, 0, 0, 0, 0, 0, 1});
  REQUIRE(row.segment_ids() == Ints{1, 1, 2, 2, 2, 3, 0});
  REQUIRE(row.segment_pos() == Ints{0, 1, 0, 1, 2, 0, 0});
  Row one(7);
  fill_row(Labels::kOneSegment, kTokens, token_row(one.batch, 0));
  REQUIRE(one.ids() == row.ids());
  REQUIRE(one.labels() == row.labels());
  REQUIRE(one.weights() == row.weights());
  REQUIRE(one.segment_ids() == Ints{1, 1, 1, 1, 1, 1, 0});
  REQUIRE(one.segment_pos() == Ints{0, 1, 2, 3, 4, 5, 0});
  REQUIRE(tokens_per_row(Labels::kOneSegment, 7) == 7);
}

TEST_CASE("unused positions are padding without weight") {
  Row row(4);
  fill_row(Labels::kShiftRight, std::span(kTokens).subspan(2, 2), token_row(row.batch, 0));
  REQUIRE(row.labels() == Ints{21, 22, 0, 0});
  REQUIRE(row.ids() == Ints{0, 21, 0, 0});
  REQUIRE(row.weights() == Floats{1, 1, 0, 0});
  REQUIRE(row.paddings() == Floats{0, 0, 1, 1});
  REQUIRE(row.segment_ids() == Ints{1, 1, 0, 0});
  REQUIRE(row.segment_pos() == Ints{0, 1, 0, 0});
}

TEST_CASE("a single token has no next-token label") {
  Row row(2);
  fill_row(Labels::kNextToken, std::span(kTokens).first(1), token_row(row.batch, 0));
  REQUIRE(row.weights() == Floats{0, 0});
  REQUIRE(row.segment_ids() == Ints{0, 0});
}

// Ids 0 to 99; the last digit of an id is its number of bytes.
class DigitTokenizer final : public Tokenizer {
 public:
  DigitTokenizer() {
    start_id_ = 77;
    for (size_t id = 0; id < 100; ++id)
      texts_.push_back({TokenText::Kind::kText, std::string(id % 10, 'x')});
  }
  using Tokenizer::encode;
  void encode(std::string_view, std::vector<int32_t>*) const override {}
};

TEST_CASE("the tokenizer gives the start id and the bytes of text of labels") {
  const DigitTokenizer tokenizer;
  Row shifted(8), next(5);
  fill_row({Labels::kShiftRight, &tokenizer}, kTokens, token_row(shifted.batch, 0));
  REQUIRE(shifted.ids() == Ints{77, 11, 77, 21, 22, 77, 0, 0});
  REQUIRE(*shifted.batch.at("label_bytes").data<float>() == 1 + 2 + 1 + 2 + 3 + 1);
  // The first tokens of documents, 21 and 31, are not predicted.
  fill_row({Labels::kNextToken, &tokenizer}, kTokens, token_row(next.batch, 0));
  REQUIRE(*next.batch.at("label_bytes").data<float>() == 2 + 2 + 3);
  fill_row(Labels::kNextToken, kTokens, token_row(next.batch, 0));
  REQUIRE(*next.batch.at("label_bytes").data<float>() == 0);
}

// A direct implementation of the conventions, token by token.
Batch filled_plainly(Labels labels, const std::vector<uint32_t>& encoded, int64_t seq_len) {
  Batch batch = make_token_batch(1, seq_len);
  const TokenRow row = token_row(batch, 0);
  const bool shifted = labels == Labels::kShiftRight;
  const bool one = labels == Labels::kOneSegment;
  const size_t size = encoded.size();
  for (size_t i = 0; i + (labels == Labels::kNextToken ? 1 : 0) < size; ++i) {
    const bool start = i == 0 || (!one && is_document_start(encoded[i]));
    const bool last = !shifted && i + 1 == size;
    const uint32_t label = last ? 0 : encoded[shifted ? i : i + 1];
    row.segment_ids[i] = i == 0 ? 1 : row.segment_ids[i - 1] + (start ? 1 : 0);
    row.segment_pos[i] = start ? 0 : row.segment_pos[i - 1] + 1;
    row.labels[i] = token_id(label);
    row.ids[i] = !shifted ? token_id(encoded[i]) : start ? 77 : token_id(encoded[i - 1]);
    const bool crosses = labels == Labels::kNextToken && is_document_start(label);
    row.weights[i] = last || crosses ? 0.0f : 1.0f;
    row.paddings[i] = 0.0f;
    *row.label_bytes += row.weights[i] * static_cast<float>(row.labels[i] % 10);
  }
  *row.eval_sample_weight = 1.0f;
  return batch;
}

TEST_CASE("rows of any documents follow the conventions, whatever the memory held before") {
  const DigitTokenizer tokenizer;
  std::mt19937 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    constexpr Labels kAll[] = {Labels::kNextToken, Labels::kShiftRight, Labels::kNextInRow,
                               Labels::kOneSegment};
    const Labels labels = kAll[trial % 4];
    const auto seq_len = static_cast<int64_t>(1 + random() % 150);
    const auto most = static_cast<size_t>(tokens_per_row(labels, seq_len));
    std::vector<uint32_t> encoded(trial % 3 == 0 ? most : random() % (most + 1));
    const uint32_t rarity = 1 + random() % 60;
    for (uint32_t& token : encoded)
      token = encode_token(static_cast<int32_t>(random() % 100), random() % rarity == 0);
    Batch filled = make_token_batch(1, seq_len);
    for (auto& [name, array] : filled)
      for (std::byte& byte : array.bytes) byte = static_cast<std::byte>(random());
    fill_row({labels, &tokenizer}, encoded, token_row(filled, 0));
    const Batch expected = filled_plainly(labels, encoded, seq_len);
    for (const auto& [name, array] : expected) {
      INFO(name << " of trial " << trial);
      REQUIRE(filled.at(name).bytes == array.bytes);
    }
  }
}

TEST_CASE("a batch describes its arrays") {
  const Batch batch = token_batch_specification(3, 5);
  REQUIRE(batch.size() == 9);
  REQUIRE(batch.at("ids").dtype == DType::kI32);
  REQUIRE(batch.at("weights").dtype == DType::kF32);
  REQUIRE(batch.at("labels").axes == std::vector<std::string>{"batch", "seq"});
  REQUIRE(batch.at("segment_pos").shape == std::vector<int64_t>{3, 5});
  REQUIRE(batch.at("eval_sample_weights").shape == std::vector<int64_t>{3});
  REQUIRE(batch.at("label_bytes").dtype == DType::kF32);
  REQUIRE(batch.at("source").dtype == DType::kI32);
  REQUIRE(batch.at("source").shape == std::vector<int64_t>{3});
  REQUIRE(batch.at("ids").bytes.empty());
}

}  // namespace
}  // namespace tessera
