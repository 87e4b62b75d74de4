// SPDX-License-Identifier: Apache-2.0
// Permutations, and orders of rows: each epoch has every row once, and added files change nothing
// before them.
#include "inputs/shuffle.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace tessera {
namespace {

std::vector<int64_t> all(int64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(permutation(i));
  return values;
}

TEST_CASE("a permutation is a bijection of its indices") {
  for (int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4096, 4097, 100003}) {
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t value : all(size, 5, 0)) {
      REQUIRE(value >= 0);
      REQUIRE(value < size);
      REQUIRE_FALSE(seen[static_cast<size_t>(value)]);
      seen[static_cast<size_t>(value)] = true;
    }
  }
}

TEST_CASE("a permutation is a pure function of seed, epoch and index") {
  REQUIRE(all(1000, 7, 3) == all(1000, 7, 3));
  REQUIRE(all(1000, 7, 3) != all(1000, 7, 4));
  REQUIRE(all(1000, 7, 3) != all(1000, 8, 3));
  // Random access gives the same values.
  REQUIRE(Permutation(1000, 7, 3)(617) == all(1000, 7, 3)[617]);
}

TEST_CASE("a permutation's values never change, since saved runs depend on them") {
  const std::vector<int64_t> values = all(10, 1234, 0);
  const Permutation large(int64_t{1} << 40, 1234, 1);
  CAPTURE(values, large(0), large(1));
  REQUIRE(values == std::vector<int64_t>{8, 0, 7, 3, 2, 4, 6, 1, 5, 9});
  REQUIRE(large(0) == 763397421171);
  REQUIRE(large(1) == 1053542149213);
}

TEST_CASE("a permutation moves an index anywhere and separates neighbours") {
  // Over many epochs index 0 of 64 is equally often at each place: chi-squared with 63 degrees of
  // freedom is below 120 except once in 10^5.
  constexpr int64_t kSize = 64;
  constexpr int kEpochs = 64000;
  std::vector<double> counts(kSize);
  int neighbours = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(kSize, 1, static_cast<uint64_t>(epoch));
    counts[static_cast<size_t>(permutation(0))] += 1;
    if (permutation(1) == permutation(0) + 1) ++neighbours;
  }
  double chi_squared = 0;
  for (double count : counts) chi_squared += std::pow(count - 1000.0, 2) / 1000.0;
  REQUIRE(chi_squared < 120.0);
  // The expected fraction is 63 / (64 * 63), 1000 times; the deviation is about 31.
  REQUIRE(std::abs(neighbours - 1000) < 160);
}

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

TEST_CASE("an epoch has every row once, in its own order if shuffled") {
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

TEST_CASE("rows stay within their era and their file") {
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

TEST_CASE("added files do not change the order of those before them") {
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
