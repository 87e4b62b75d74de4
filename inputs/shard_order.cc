// SPDX-License-Identifier: Apache-2.0
#include "inputs/shard_order.h"

#include "core/base/error.h"

namespace tessera {

ShardOrder::ShardOrder(int64_t shards, int64_t rows, std::optional<uint64_t> seed)
    : shards_(shards), rows_(rows), parts_((rows + shards - 1) / shards), seed_(seed) {
  CHECK(shards >= 1 && rows >= 1, "{} shards for {} rows", shards, rows);
}

ShardOrder::Unit ShardOrder::operator()(int64_t number) const {
  const int64_t units = units_per_epoch();
  const int64_t epoch = number / units;
  int64_t index = number % units;
  if (seed_) index = Permutation(units, *seed_, static_cast<uint64_t>(epoch))(index);
  // Rows beside each other begin in different shards.
  return {epoch, index % shards_, index / shards_};
}

}  // namespace tessera
