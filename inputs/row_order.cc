// SPDX-License-Identifier: Apache-2.0
#include "inputs/row_order.h"

#include <algorithm>

#include "core/base/error.h"
#include "inputs/permutation.h"

namespace tessera {
namespace {

constexpr uint64_t kEraKey = 0x657261u;

}  // namespace

RowOrder::RowOrder(Shuffle shuffle, int64_t era_length, uint64_t seed,
                   const std::vector<int64_t>& part_sizes)
    : shuffle_(shuffle), era_length_(era_length), seed_(seed) {
  CHECK(shuffle != Shuffle::kEra || era_length >= 1, "eras of {} rows", era_length);
  for (const int64_t size : part_sizes) ends_.push_back(this->size() + size);
}

int64_t RowOrder::operator()(int64_t epoch, int64_t place) const {
  CHECK(place >= 0 && place < size(), "place {} of {}", place, size());
  const auto number = static_cast<uint64_t>(epoch);
  switch (shuffle_) {
    case Shuffle::kNone:
      return place;
    case Shuffle::kFull:
      return Permutation(size(), seed_, number)(place);
    case Shuffle::kEra: {
      const auto end = std::upper_bound(ends_.begin(), ends_.end(), place);
      const int64_t begin = end == ends_.begin() ? 0 : *std::prev(end);
      const int64_t era = begin + (place - begin) / era_length_ * era_length_;
      // An era is known by its first row, which no later part changes.
      const uint64_t key = mix_bits(static_cast<uint64_t>(era), mix_bits(seed_, kEraKey));
      return era + Permutation(std::min(era_length_, *end - era), key, number)(place - era);
    }
  }
  CHECK(false, "shuffle {}", static_cast<int>(shuffle_));
  return 0;
}

}  // namespace tessera
