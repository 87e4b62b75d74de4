// SPDX-License-Identifier: Apache-2.0
// In what order the rows of a set are taken, epoch by epoch: a function of (seed, epoch, place)
// that needs no table and can be entered anywhere. Not what the rows are.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/hparams/fields.h"

namespace tessera {

enum class Shuffle {
  kNone,  // As they stand.
  kFull,  // One permutation of all rows, another in each epoch.
  // Eras of era_length rows follow one another, each with a permutation of its own. No era spans
  // two parts of the set (files), so that the order of what is there stays when parts are added.
  kEra,
};

constexpr std::array<EnumName<Shuffle>, 3> enum_names(Shuffle) {
  return {{{Shuffle::kNone, "none"}, {Shuffle::kFull, "full"}, {Shuffle::kEra, "era"}}};
}

class RowOrder {
 public:
  // `part_sizes` are the rows of each part, in order.
  RowOrder(Shuffle shuffle, int64_t era_length, uint64_t seed,
           const std::vector<int64_t>& part_sizes);

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // The row that comes as the `place`-th of an epoch.
  int64_t operator()(int64_t epoch, int64_t place) const;

 private:
  Shuffle shuffle_;
  int64_t era_length_;
  uint64_t seed_;
  std::vector<int64_t> ends_;  // Of the parts.
};

}  // namespace tessera
