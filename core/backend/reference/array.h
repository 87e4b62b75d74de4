// SPDX-License-Identifier: Apache-2.0
// A whole array of the reference interpreter: every element a double, row-major, no layout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/graph/type.h"

namespace tessera {

struct ReferenceArray {
  std::vector<Axis> axes;
  std::vector<double> values;  // Integers and bools (0 or 1) too: all 32-bit ones are exact.
};

// The number of elements along these axes.
int64_t element_count(const std::vector<Axis>& axes);

// Steps of an array along each of `axes`, by name; 0 along those it lacks (it is then broadcast).
std::vector<int64_t> strides_along(const ReferenceArray& array, const std::vector<Axis>& axes);

// Calls visit(position, offsets) for each index of `axes` in row-major order; `position` counts
// from 0, offsets[i] is where strides[i] leads.
void for_each_index(
    const std::vector<Axis>& axes, const std::vector<std::vector<int64_t>>& strides,
    const std::function<void(int64_t position, const std::vector<int64_t>& offsets)>& visit);

}  // namespace tessera
