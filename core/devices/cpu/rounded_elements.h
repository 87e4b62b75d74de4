// SPDX-License-Identifier: Apache-2.0
// The random bits with which a node rounds the elements of its shard (core/ops/rounding.h).
#pragma once

#include <cstdint>

#include "core/base/random.h"
#include "core/devices/cpu/shard_index_map.h"
#include "core/devices/cpu/thread_pool.h"
#include "core/graph/graph.h"

namespace tessera {

class RoundedElements {
 public:
  // `node` rounds tensors of the local type `type` stochastically.
  RoundedElements(const Type& type, const Node& node)
      : key_(random_key(node.attributes.get(key::kSeed), node.attributes.get(key::kStream))),
        first_(node.attributes.get(key::kFirst)),
        map_(type, node.attributes) {}

  // Returns the stream after `count` updates.
  RandomStream stream(float count) const {
    return {key_, static_cast<uint64_t>(static_cast<int64_t>(count))};
  }
  // Calls run(offset, begin, end) for runs of `range` that are contiguous in the stream: element i
  // of a run is element offset + i of the stream.
  template <typename Run>
  void for_each_run(Range range, const Run& run) const {
    map_.for_each_run(range.begin, range.end, {}, [&](int64_t offset, int64_t begin, int64_t end) {
      run(first_ + offset, begin, end);
    });
  }

 private:
  uint64_t key_;
  int64_t first_;
  ShardIndexMap map_;
};

}  // namespace tessera
