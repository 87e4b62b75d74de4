// SPDX-License-Identifier: Apache-2.0
// How two arrays of one type differ, element by element, and hashes of an array's bytes that two
// machines can compare in place of the bytes. And how the values of a step differ on two meshes,
// which divide the same elements in different ways: for each value the sum of a hash of its
// elements over all devices, microbatches and copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/type.h"
#include "tasks/run/observe/launch_list.h"
#include "tasks/run/observe/value_range.h"

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

// A mesh has the same number of copies of each element of a value.
struct ValueSum {
  uint64_t elements = 0;  // With copies.
  uint64_t sum = 0;       // Hashes of elements, added modulo 2^64.
};
// Whether both have the same elements, whatever the number of copies.
bool same_elements(const ValueSum& a, const ValueSum& b);

// What a launch writes, without what depends on the mesh: "einsum [forward] in lm.ffn,
// layers/feed_forward/feed_forward.cc:41, output 0, f32[batch seq embed]".
std::string value_name(const ListedLaunch& launch, size_t output);

class ValueSums {
 public:
  // Any thread.
  void add(const ListedLaunch& launch, const ArrayBytesList& outputs);
  const std::map<std::string, ValueSum>& by_name() const { return by_name_; }

 private:
  std::mutex mutex_;
  std::map<std::string, ValueSum> by_name_;
};

// The values of the launches in the order of the lists that have other elements on the other mesh,
// and how many values were compared. A value that only one mesh has is a part of a sum, or is
// moved between devices.
struct MeshComparison {
  std::vector<std::string> different;
  int64_t compared = 0, only_here = 0, only_there = 0;
  // At least one value was compared, and none differs.
  bool is_equal() const { return compared > 0 && different.empty(); }
  std::string text() const;
};
MeshComparison compared_meshes(const std::vector<const LaunchList*>& lists,
                               const std::map<std::string, ValueSum>& here,
                               const std::map<std::string, ValueSum>& there);

}  // namespace tessera
