// SPDX-License-Identifier: Apache-2.0
// Where the elements of a shard lie in the global array, both row-major: for ops whose result
// depends on it (core/ops/collective.h). In runs, so that loops over them stay long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/type.h"

namespace tessera {

// Which examples of the whole batch a batch in parts holds along its leading axis: `first`, first +
// stride, …
struct Examples {
  int64_t first = 0;
  int64_t stride = 1;
};

class ShardElements {
 public:
  // The shard of the local type `anchor` that the attributes `origin` and `extent` place; without
  // them, the whole array.
  ShardElements(const Type& anchor, const Attributes& attributes);

  // Calls run(offset, begin, end) for the runs of elements [begin, end) of the shard that lie
  // together in the global array: element i of one is number offset + i there.
  template <typename Run>
  void for_runs(int64_t begin, int64_t end, Examples examples, const Run& run) const {
    // Examples that are apart break runs where the axes do not.
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

  // The number of one element in the global array.
  int64_t global(int64_t element, Examples examples = {}) const {
    int64_t result = 0;
    for_runs(element, element + 1, examples,
             [&](int64_t offset, int64_t begin, int64_t) { result = offset + begin; });
    return result;
  }

 private:
  // Where run `number` of those over the axes from `outer` on begins in the global array.
  int64_t offset_of(int64_t number, size_t outer, Examples examples) const;

  std::vector<int64_t> shape_, origin_, strides_;  // Strides are the global array's.
  size_t outer_ = 0;  // A run spans the axes from this one on; all but the first of them are whole.
  int64_t run_ = 1;   // Elements of one.
  int64_t example_elements_ = 1;  // Of the shard's part of an example.
};

// The first element's global index along an axis of the anchor; 0 if that is whole.
int64_t origin_along(const Attributes& attributes, int64_t axis);

}  // namespace tessera
