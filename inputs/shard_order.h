// SPDX-License-Identifier: Apache-2.0
// Which shard each row of a batch reads, and when. The unit is a shard; where there are fewer
// shards than rows, a part of one: every parts-th document of it. Row r reads units r, r + rows,
// r + 2 rows, … of epoch after epoch, so that rows share units evenly and none is read twice.
#pragma once

#include <cstdint>
#include <optional>

#include "inputs/permutation.h"

namespace tessera {

class ShardOrder {
 public:
  struct Unit {
    int64_t epoch = 0;
    int64_t shard = 0;
    int64_t part = 0;  // Documents whose number is this modulo parts().
  };

  // With a seed the order is another in each epoch; without, shards come as they stand.
  ShardOrder(int64_t shards, int64_t rows, std::optional<uint64_t> seed);

  int64_t rows() const { return rows_; }
  int64_t parts() const { return parts_; }
  int64_t units_per_epoch() const { return shards_ * parts_; }
  Unit operator()(int64_t number) const;  // Counted over all epochs.

 private:
  int64_t shards_;
  int64_t rows_;
  int64_t parts_;
  std::optional<uint64_t> seed_;
};

}  // namespace tessera
