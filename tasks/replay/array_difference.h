// SPDX-License-Identifier: Apache-2.0
// How two arrays of one type differ, element by element, and hashes of an array's bytes that two
// machines can compare in place of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/type.h"

namespace tessera {

struct ArrayDifference {
  int64_t elements = 0;         // Elements of the array.
  int64_t different = 0;        // Elements that differ.
  std::vector<int64_t> index;   // Index of the first that differs.
  double here = 0, there = 0;   // Its values.
  double largest_absolute = 0;  // Over all that differ; infinite if one side is not finite.
  double largest_relative = 0;  // |here - there| / max(|here|, |there|).
};

// Nullopt if no element differs. With `tolerance` 0 elements differ if their bits do. Else floats
// differ if |here - there| > tolerance * the largest finite magnitude in the two arrays, so that
// sums which nearly cancel do not count; integers and bools still by their bits. Two NaNs are then
// equal. Both spans have type.bytes() bytes.
std::optional<ArrayDifference> array_difference(const Type& type, std::span<const std::byte> here,
                                                std::span<const std::byte> there, double tolerance);

// "3 of 1024 elements differ; the first, [0, 7], is 1.5 here, 1.25 there".
std::string text_of(const ArrayDifference& difference);
// "largest difference 0.25, relative 0.167".
std::string extent_of(const ArrayDifference& difference);

// MurmurHash3_x64_128 with seed 0 (Austin Appleby, 2011, public domain) as 32 hexadecimal digits.
// Not cryptographic.
std::string array_hash(std::span<const std::byte> bytes);
// Its finalizer, a hash of one word: a bijection that maps 0 to 0.
uint64_t hashed_bits(uint64_t bits);

}  // namespace tessera
