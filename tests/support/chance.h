// SPDX-License-Identifier: Apache-2.0
// Random choices that are the same on every machine: std::mt19937 without the distributions of std.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace tessera {

class Chance {
 public:
  explicit Chance(uint32_t seed) : random_(seed) {}
  int64_t below(int64_t count) { return static_cast<int64_t>(random_() % count); }
  bool coin() { return below(2) == 0; }
  bool one_in(int64_t count) { return below(count) == 0; }
  template <typename T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }

 private:
  std::mt19937 random_;
};

}  // namespace tessera
