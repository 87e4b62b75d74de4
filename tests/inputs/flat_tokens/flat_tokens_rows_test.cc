// SPDX-License-Identifier: Apache-2.0
// Best-fit packing of document pieces into rows.
#include <algorithm>
#include <random>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// Checks that every piece is in one row and no row is too full; returns the total length.
int64_t require_sound(const BestFitPacking& rows, const std::vector<int32_t>& lengths,
                      int32_t capacity) {
  std::vector<int> seen(lengths.size(), 0);
  int64_t total = 0;
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    int64_t used = 0;
    int64_t last = -1;
    for (const uint32_t piece : rows.row(row)) {
      REQUIRE(static_cast<int64_t>(piece) > last);
      last = piece;
      ++seen[piece];
      used += lengths[piece];
    }
    REQUIRE(used >= 1);
    REQUIRE(used <= capacity);
    total += used;
  }
  for (const int times : seen) REQUIRE(times == 1);
  return total;
}

TEST_CASE("pieces that fit together share rows") {
  const std::vector<int32_t> lengths = {3, 8, 5, 10, 2, 7, 5};
  const BestFitPacking rows(lengths, 10);
  REQUIRE(rows.num_rows() == 4);  // 10, 8+2, 7+3, 5+5.
  REQUIRE(require_sound(rows, lengths, 10) == 40);
  REQUIRE(BestFitPacking({}, 10).num_rows() == 0);
}

TEST_CASE("rows of random pieces are nearly full") {
  std::mt19937 random(6);
  for (const int32_t capacity : {1, 2, 17, 512}) {
    std::vector<int32_t> lengths;
    for (int i = 0; i < 5000; ++i)
      lengths.push_back(1 + static_cast<int32_t>(random() % static_cast<uint32_t>(capacity)));
    const BestFitPacking rows(lengths, capacity);
    const int64_t total = require_sound(rows, lengths, capacity);
    // The bound of best-fit decreasing, against the minimum number of rows.
    const double fewest = static_cast<double>(total) / capacity;
    REQUIRE(static_cast<double>(rows.num_rows()) <= 11.0 / 9.0 * (fewest + 1.0) + 4.0);
    const BestFitPacking again(lengths, capacity);
    for (int64_t row = 0; row < rows.num_rows(); ++row)
      REQUIRE(std::equal(rows.row(row).begin(), rows.row(row).end(), again.row(row).begin()));
  }
}

// Documents of these lengths; the tokens of a document are its number.
void write_tokens(const std::filesystem::path& path, const std::vector<int64_t>& lengths) {
  FlatTokensWriter writer(path, *make_tokenizer("bytes"));
  writer.begin_split("train");
  for (size_t i = 0; i < lengths.size(); ++i)
    writer.add_document(
        std::vector<int32_t>(static_cast<size_t>(lengths[i]), static_cast<int32_t>(i % 250) + 1));
  writer.finish();
}

TEST_CASE("documents share rows whole, and each label occurs once") {
  const TemporaryDirectory directory;
  std::vector<int64_t> lengths;
  std::mt19937 random(9);
  for (int i = 0; i < 200; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % 16));
  lengths[17] = 40;  // Longer than a row.
  write_tokens(directory / "tokens.h5", lengths);
  for (const Labels labels : {Labels::kShiftRight, Labels::kNextToken}) {
    double rows[2] = {0, 0};
    std::vector<int32_t> scored[2];
    for (const bool best_fit : {false, true}) {
      FlatTokensInput input({.path = (directory / "tokens.h5").string(),
                             .global_batch_size = 4,
                             .seq_len = 16,
                             .packed = false,
                             .best_fit = best_fit,
                             .labels = labels,
                             .repeat = false});
      input.attach({});
      while (const std::optional<Batch> batch = input.get_next()) {
        for (int64_t row = 0; row < 4; ++row)
          rows[best_fit] += batch->at("eval_sample_weights").data<float>()[row];
        const auto* ids = batch->at("ids").data<int32_t>();
        const auto* label = batch->at("labels").data<int32_t>();
        const auto* weight = batch->at("weights").data<float>();
        const auto* segment = batch->at("segment_ids").data<int32_t>();
        const auto* position = batch->at("segment_pos").data<int32_t>();
        for (int64_t i = 0; i < 64; ++i) {
          if (weight[i] > 0) scored[best_fit].push_back(label[i]);
          // Each segment is one document, with positions from 0.
          if (i % 16 == 0 || segment[i] == 0) continue;
          const bool goes_on = segment[i] == segment[i - 1];
          REQUIRE(position[i] == (goes_on ? position[i - 1] + 1 : 0));
          if (goes_on && weight[i] > 0 && weight[i - 1] > 0) REQUIRE(label[i] == label[i - 1]);
          if (goes_on && position[i] > 1) REQUIRE(ids[i] == ids[i - 1]);
        }
      }
      std::sort(scored[best_fit].begin(), scored[best_fit].end());
    }
    REQUIRE(scored[0] == scored[1]);
    REQUIRE(rows[1] < 0.62 * rows[0]);  // Documents fill half a row on average.
  }
  FlatTokensInput::HParams both{.path = "x", .global_batch_size = 4, .seq_len = 16};
  both.best_fit = true;
  REQUIRE_THROWS_WITH(FlatTokensInput(both), Catch::Contains("best_fit needs packed=false"));
}

}  // namespace
}  // namespace tessera
