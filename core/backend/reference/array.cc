// SPDX-License-Identifier: Apache-2.0
#include "core/backend/reference/array.h"

namespace tessera {

int64_t element_count(const std::vector<Axis>& axes) {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.size;
  return count;
}

std::vector<int64_t> strides_along(const ReferenceArray& array, const std::vector<Axis>& axes) {
  std::vector<int64_t> strides;
  for (const Axis& wanted : axes) {
    int64_t stride = 1, found = 0;
    for (size_t i = array.axes.size(); i-- > 0; stride *= array.axes[i].size) {
      if (array.axes[i].name == wanted.name) found = stride;
    }
    strides.push_back(found);
  }
  return strides;
}

void for_each_index(
    const std::vector<Axis>& axes, const std::vector<std::vector<int64_t>>& strides,
    const std::function<void(int64_t position, const std::vector<int64_t>& offsets)>& visit) {
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

}  // namespace tessera
