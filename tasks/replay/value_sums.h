// SPDX-License-Identifier: Apache-2.0
// Compares the values of a step on two meshes, which divide the same elements in different ways:
// for each value the sum of a hash of its elements over all devices, microbatches and copies.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tasks/run/observe/launch_list.h"
#include "tasks/run/observe/value_range.h"

namespace tessera {

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
