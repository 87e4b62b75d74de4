// SPDX-License-Identifier: Apache-2.0
// Philox against published vectors, keys, and uniforms and normals from its bits.
#include "core/base/random.h"

#include <cmath>
#include <set>

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  // Random123, tests/kat_vectors: counters and keys of zeros, ones and digits of pi.
  REQUIRE(philox(0, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint64_t kOnes = ~uint64_t{0};
  REQUIRE(philox(kOnes, kOnes, kOnes) ==
          PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
          PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Keys depend on the seed, the path and the layer") {
  std::set<uint64_t> keys;
  for (const uint64_t seed : {0u, 1u}) {
    for (const char* path : {"lm.w", "lm.b", ""}) {
      for (const int64_t layer : {-1, 0, 1}) keys.insert(random_key(seed, path, layer));
    }
  }
  REQUIRE(keys.size() == 18);
  REQUIRE(random_key(7, "lm.w", 2) == random_key(7, "lm.w", 2));
}

TEST_CASE("Uniforms have 24 bits and lie in [0, 1)") {
  REQUIRE(uniform_from_bits(0) == 0.0f);
  REQUIRE(uniform_from_bits(0xff) == 0.0f);
  REQUIRE(uniform_from_bits(0x100) == 1.0f / 16777216.0f);
  REQUIRE(uniform_from_bits(0xffffffff) == 1.0f - 1.0f / 16777216.0f);
}

TEST_CASE("Normals have the moments of the standard normal") {
  constexpr int kBlocks = 50000;
  double sum = 0.0, squares = 0.0, fourths = 0.0;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    for (const float value : normals_from_block(philox(random_key(1, "w"), i, 0))) {
      REQUIRE(std::isfinite(value));
      const double square = static_cast<double>(value) * value;
      sum += value;
      squares += square;
      fourths += square * square;
    }
  }
  // Four standard errors of each mean: 1, sqrt(2) and sqrt(96) over sqrt(n).
  const double n = 4.0 * kBlocks;
  REQUIRE(std::abs(sum / n) < 4.0 / std::sqrt(n));
  REQUIRE(std::abs(squares / n - 1.0) < 4.0 * std::sqrt(2.0 / n));
  REQUIRE(std::abs(fourths / n - 3.0) < 4.0 * std::sqrt(96.0 / n));
}

TEST_CASE("The extreme blocks give finite normals") {
  for (const float value : normals_from_block({0, 0, 0xffffffff, 0xffffffff})) {
    REQUIRE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace tessera
