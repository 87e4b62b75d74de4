// SPDX-License-Identifier: Apache-2.0
// Maps the elements of a shard to their indices in the global array, both row-major, for ops whose
// result depends on them (core/ops/reshard.h). It maps contiguous runs, for long inner loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/type.h"

namespace tessera {

// The examples of the global batch in a microbatch, along its leading axis: first, first + stride,
// …
struct Examples {
  int64_t first = 0;
  int64_t stride = 1;
};

class ShardIndexMap {
 public:
  // Maps the shard of local type `anchor` at the attributes `origin` and `extent`, or `rows`;
  // without them, the whole array.
  ShardIndexMap(const Type& anchor, const Attributes& attributes);

  // Calls run(offset, begin, end) for the runs of the elements [begin, end) of the shard that are
  // contiguous in the global array: element i of a run has the global index offset + i.
  template <typename Run>
  void for_each_run(int64_t begin, int64_t end, Examples examples, const Run& run) const {
    // Examples with gaps break runs that the axes do not break.
    const size_t outer =
        examples.stride == 1 ? outer_ : std::min(shape_.size(), std::max<size_t>(outer_, 1));
    const int64_t length = outer == outer_ ? run_ : example_elements_;
    while (begin < end) {
      const int64_t number = begin / length;
      const int64_t stop = std::min(end, (number + 1) * length);
      run(offset_of(number, outer, examples) - number * length, begin, stop);
      begin = stop;
    }
  }

 private:
  // Returns the global index where run `number` over the axes from `outer` on begins.
  int64_t offset_of(int64_t number, size_t outer, Examples examples) const;

  std::vector<int64_t> shape_, origin_, strides_;  // Strides of the global array.
  std::vector<int64_t> rows_;                      // Empty, or the attribute `rows`.
  size_t outer_ = 0;  // A run spans the axes from here on, all but the first of them whole.
  int64_t run_ = 1;   // Elements of a run.
  int64_t example_elements_ = 1;  // Elements of an example in the shard.
};

}  // namespace tessera
