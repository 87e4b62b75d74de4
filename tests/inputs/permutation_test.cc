// SPDX-License-Identifier: Apache-2.0
#include "inputs/permutation.h"

#include <cmath>
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
  // Entered anywhere, it gives what it gives on the way.
  REQUIRE(Permutation(1000, 7, 3)(617) == all(1000, 7, 3)[617]);
}

TEST_CASE("a permutation's values are fixed for all time, since saved runs depend on them") {
  const std::vector<int64_t> values = all(10, 1234, 0);
  const Permutation large(int64_t{1} << 40, 1234, 1);
  CAPTURE(values, large(0), large(1));
  REQUIRE(values == std::vector<int64_t>{8, 0, 7, 3, 2, 4, 6, 1, 5, 9});
  REQUIRE(large(0) == 763397421171);
  REQUIRE(large(1) == 1053542149213);
}

TEST_CASE("a permutation moves an index anywhere, and neighbours apart") {
  // Over many epochs index 0 of 64 lands on each place equally often: chi-squared with 63 degrees
  // of freedom is below 120 but once in 10^5.
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
  // Expected 63 / (64 * 63) of the time, 1000 times; the deviation is about 31.
  REQUIRE(std::abs(neighbours - 1000) < 160);
}

}  // namespace
}  // namespace tessera
