// SPDX-License-Identifier: Apache-2.0
// Orders of rows: each epoch takes every row once, and what is added behind changes nothing before.
#include "inputs/row_order.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace tessera {
namespace {

std::vector<int64_t> epoch_of(const RowOrder& order, int64_t epoch) {
  std::vector<int64_t> rows;
  for (int64_t place = 0; place < order.size(); ++place) rows.push_back(order(epoch, place));
  return rows;
}

bool is_permutation(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] != static_cast<int64_t>(i)) return false;
  return true;
}

TEST_CASE("an epoch takes every row once, in an order of its own if it is shuffled") {
  const Shuffle shuffle = GENERATE(Shuffle::kNone, Shuffle::kFull, Shuffle::kEra);
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<int64_t> parts(1 + random() % 4);
    for (int64_t& part : parts) part = static_cast<int64_t>(random() % 60);
    parts.push_back(40);
    const RowOrder order(shuffle, static_cast<int64_t>(1 + random() % 30), 7, parts);
    REQUIRE(is_permutation(epoch_of(order, 0)));
    REQUIRE(is_permutation(epoch_of(order, 1)));
  }
  const RowOrder order(shuffle, 20, 7, {100});
  REQUIRE((epoch_of(order, 0) == epoch_of(order, 1)) == (shuffle == Shuffle::kNone));
  REQUIRE((epoch_of(order, 0) == epoch_of(RowOrder(shuffle, 20, 8, {100}), 0)) ==
          (shuffle == Shuffle::kNone));
}

TEST_CASE("rows stay within their era and their part") {
  const RowOrder order(Shuffle::kEra, 16, 3, {40, 25, 16});
  // Eras: 0-15, 16-31, 32-39; 40-55, 56-64; 65-80.
  const std::vector<int64_t> begins = {0, 16, 32, 40, 56, 65, 81};
  const std::vector<int64_t> rows = epoch_of(order, 2);
  for (size_t era = 0; era + 1 < begins.size(); ++era) {
    std::vector<int64_t> taken(rows.begin() + begins[era], rows.begin() + begins[era + 1]);
    REQUIRE_FALSE(std::is_sorted(taken.begin(), taken.end()));
    std::sort(taken.begin(), taken.end());
    REQUIRE(taken.front() == begins[era]);
    REQUIRE(taken.back() == begins[era + 1] - 1);
  }
}

TEST_CASE("parts that are added leave the order of those before them") {
  std::mt19937 random(2);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<int64_t> parts(1 + random() % 3);
    for (int64_t& part : parts) part = static_cast<int64_t>(1 + random() % 50);
    const auto era_length = static_cast<int64_t>(1 + random() % 40);
    const auto before = epoch_of({Shuffle::kEra, era_length, 5, parts}, 0);
    parts.push_back(static_cast<int64_t>(1 + random() % 50));
    const auto after = epoch_of({Shuffle::kEra, era_length, 5, parts}, 0);
    REQUIRE(std::equal(before.begin(), before.end(), after.begin()));
  }
}

}  // namespace
}  // namespace tessera
