// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/array_difference.h"

#include <limits>
#include <span>

#include "core/graph/type.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

const Type kMatrix = make_type(DType::kF32, {{"row", 2, {}}, {"column", 3, {}}});

std::optional<ArrayDifference> difference_of(const std::vector<float>& here,
                                             const std::vector<float>& there, double tolerance) {
  return array_difference(kMatrix, std::as_bytes(std::span(here)), std::as_bytes(std::span(there)),
                          tolerance);
}

std::string hash_of_text(std::string_view text) {
  return array_hash(std::as_bytes(std::span(text)));
}

TEST_CASE("a difference has the first index, both values and the largest differences") {
  const auto found = difference_of({1, 2, 3, 4, 5, 8}, {1, 2, 3, 4, 6, 4}, 0);
  REQUIRE(found);
  REQUIRE(found->different == 2);
  REQUIRE(found->index == std::vector<int64_t>{1, 1});
  REQUIRE(text_of(*found) == "2 of 6 elements differ; the first, [1, 1], is 5 here, 6 there");
  REQUIRE(extent_of(*found) == "largest difference 4, relative 0.5");
  REQUIRE(!difference_of({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}, 0));
}

TEST_CASE("a tolerance is relative to the largest value of the array") {
  const std::vector<float> here = {100, 0.001f, 3, 4, 5, 6}, there = {100, 0.002f, 3, 4, 5, 6};
  REQUIRE(difference_of(here, there, 0)->different == 1);
  REQUIRE(difference_of(here, there, 1e-6));
  REQUIRE(!difference_of(here, there, 1e-4));
}

TEST_CASE("zeros of both signs differ in bits, and a NaN differs from a number at any tolerance") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  REQUIRE(difference_of({0, 1, 1, 1, 1, 1}, {-0.0f, 1, 1, 1, 1, 1}, 0)->different == 1);
  REQUIRE(!difference_of({0, 1, 1, 1, 1, 1}, {-0.0f, 1, 1, 1, 1, 1}, 1e-9));
  REQUIRE(
      std::isinf(difference_of({nan, 1, 1, 1, 1, 1}, {0, 1, 1, 1, 1, 1}, 0.5)->largest_absolute));
  REQUIRE(!difference_of({nan, 1, 1, 1, 1, 1}, {-nan, 1, 1, 1, 1, 1}, 0.5));
}

TEST_CASE("integers are compared by their bits at any tolerance") {
  const Type type = make_type(DType::kI32, {{"row", 2, {}}});
  const std::vector<int32_t> here = {1000000, 1}, there = {1000000, 2};
  REQUIRE(
      array_difference(type, std::as_bytes(std::span(here)), std::as_bytes(std::span(there)), 0.5));
}

// The values of the author's SMHasher for MurmurHash3_x64_128.
TEST_CASE("the hash of arrays is MurmurHash3_x64_128") {
  REQUIRE(hash_of_text("") == "00000000000000000000000000000000");
  REQUIRE(hash_of_text("hello") == "cbd8a7b341bd9b025b1e906a48ae1d19");
  REQUIRE(hash_of_text("The quick brown fox jumps over the lazy dog") ==
          "e34bbc7bbc071b6c7a433ca9c49a9347");
}

}  // namespace
}  // namespace tessera
