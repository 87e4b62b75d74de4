// SPDX-License-Identifier: Apache-2.0
// A whole array of the reference interpreter: doubles in row-major order, without a layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/type.h"

namespace tessera {

struct ReferenceArray {
  std::vector<Axis> axes;
  std::vector<double> values;  // 32-bit integers and bools (0 or 1) are exact.
};

// Returns the number of elements along these axes.
int64_t element_count(const std::vector<Axis>& axes);

// Returns strides of an array along each of `axes`, by name; 0 (broadcast) along axes it lacks.
std::vector<int64_t> strides_along(const ReferenceArray& array, const std::vector<Axis>& axes);

// Calls visit(position, offsets) for each index of `axes` in row-major order. `position` counts
// from 0; offsets[i] is the dot product of the index and strides[i].
template <typename Visit>
void for_each_index(const std::vector<Axis>& axes, const std::vector<std::vector<int64_t>>& strides,
                    const Visit& visit) {
  std::vector<int64_t> index(axes.size(), 0), offsets(strides.size(), 0);
  const int64_t count = element_count(axes);
  for (int64_t position = 0; position < count; ++position) {
    visit(position, offsets);
    for (size_t axis = axes.size(); axis-- > 0;) {
      const bool wraps = ++index[axis] == axes[axis].size;
      const int64_t step = wraps ? 1 - axes[axis].size : 1;
      for (size_t i = 0; i < strides.size(); ++i) offsets[i] += step * strides[i][axis];
      if (!wraps) break;
      index[axis] = 0;
    }
  }
}

// Convert elements of an array from and to the bytes of a device's tensor. Floats are rounded to
// the dtype; bools take one byte.
void encode_values(DType dtype, const std::vector<double>& values, std::byte* bytes);
std::vector<double> decode_values(const Type& type, const std::byte* bytes);
void decode_values(DType dtype, const std::byte* bytes, std::span<double> values);

}  // namespace tessera
