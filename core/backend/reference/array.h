// SPDX-License-Identifier: Apache-2.0
// A global array of the reference interpreter: row-major doubles without layout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/graph/type.h"

namespace tessera {

struct ReferenceArray {
  std::vector<Axis> axes;
  std::vector<double> values;  // Integers and bools (0 or 1) too: 32 bits are exact.
};

// The number of elements along these axes.
int64_t element_count(const std::vector<Axis>& axes);

// Strides of an array along each of `axes`, by name; 0 along axes that it lacks (broadcast).
std::vector<int64_t> strides_along(const ReferenceArray& array, const std::vector<Axis>& axes);

// Calls visit(position, offsets) for each index of `axes` in row-major order. `position` counts
// from 0; offsets[i] is the dot product of the index and strides[i].
void for_each_index(
    const std::vector<Axis>& axes, const std::vector<std::vector<int64_t>>& strides,
    const std::function<void(int64_t position, const std::vector<int64_t>& offsets)>& visit);

}  // namespace tessera
