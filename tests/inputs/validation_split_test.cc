// SPDX-License-Identifier: Apache-2.0
// The fraction of documents in the validation split, chosen by text.
#include <string>

#include "inputs/shuffle.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("the split has the requested fraction of documents, and a larger split contains it") {
  int small = 0, large = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = "document " + std::to_string(i);
    const bool in_small = in_validation_split(text, 0.05),
               in_large = in_validation_split(text, 0.25);
    REQUIRE(in_large >= in_small);
    small += in_small ? 1 : 0;
    large += in_large ? 1 : 0;
    REQUIRE_FALSE(in_validation_split(text, 0.0));
  }
  // Four standard deviations of a fair draw.
  REQUIRE(small == Approx(1000).margin(124));
  REQUIRE(large == Approx(5000).margin(245));
}

TEST_CASE("the validation split never changes between versions") {
  std::string held_out;
  for (const char* text : {"", "a", "b", "the quick brown fox", "Ein Satz.", "0", "1", "2"})
    held_out += in_validation_split(text, 0.5) ? 'v' : 't';
  REQUIRE(held_out == "ttvvvtvv");
}

}  // namespace
}  // namespace tessera
