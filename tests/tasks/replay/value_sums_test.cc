// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/array_difference.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Contains;

// The sum of `copies` copies of elements with these hashes.
ValueSum sum_of(const std::vector<uint64_t>& hashes, uint64_t copies) {
  ValueSum result;
  for (const uint64_t hash : hashes) result.sum += copies * hash;
  result.elements = copies * hashes.size();
  return result;
}

TEST_CASE("a value is the same whatever the number of copies and the order of its elements") {
  const std::vector<uint64_t> hashes = {0x87c37b91114253d5u, 0xff51afd7ed558ccdu, 7};
  const ValueSum one = sum_of(hashes, 1);
  REQUIRE(same_elements(one, sum_of({hashes[2], hashes[0], hashes[1]}, 6)));
  REQUIRE(same_elements(sum_of(hashes, 4), sum_of(hashes, 3)));
  std::vector<uint64_t> other = hashes;
  ++other[1];
  REQUIRE_FALSE(same_elements(one, sum_of(other, 1)));
  REQUIRE_FALSE(same_elements(sum_of(hashes, 4), sum_of(other, 3)));
  REQUIRE_FALSE(same_elements(one, sum_of({hashes[0], hashes[1]}, 1)));
}

TEST_CASE("a comparison of meshes says what differs and what was not compared") {
  MeshComparison comparison{.different = {}, .compared = 9, .only_here = 2, .only_there = 1};
  REQUIRE_THAT(comparison.text(),
               Contains("equal: 9 values") && Contains("2 values that only this"));
  REQUIRE(comparison.is_equal());
  const MeshComparison nothing{.different = {}, .only_here = 3, .only_there = 3};
  REQUIRE_FALSE(nothing.is_equal());
  REQUIRE_THAT(nothing.text(), Contains("no value in common"));
  comparison.different = {"a"};
  REQUIRE_FALSE(comparison.is_equal());
  REQUIRE_THAT(comparison.text(), Contains("first difference: a\nthe other 8 values have"));
  comparison.different = {"a", "b", "c", "d", "e", "f", "g"};
  REQUIRE_THAT(comparison.text(), Contains("of 9 values 6 more differ, next:\n  b\n") &&
                                      Contains("  f\n") && !Contains("  g\n"));
}

}  // namespace
}  // namespace tessera
