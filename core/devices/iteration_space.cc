// SPDX-License-Identifier: Apache-2.0
#include "core/devices/iteration_space.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/region.h"

namespace tessera {

std::vector<int64_t> sizes_of(const std::vector<Axis>& axes) {
  std::vector<int64_t> sizes;
  for (const Axis& axis : axes) sizes.push_back(axis.size);
  return sizes;
}

int64_t IterationSpace::elements() const { return element_count(sizes); }

int64_t IterationSpace::offset(size_t operand, int64_t index) const {
  int64_t sum = 0;
  for (size_t d = sizes.size(); d-- > 0; index /= sizes[d])
    sum += index % sizes[d] * operands[operand][d];
  return sum;
}

Strides strides_in(const Type& type, const std::vector<Axis>& space) {
  Strides strides(space.size(), 0);
  int64_t stride = 1;
  for (auto axis = type.axes.rbegin(); axis != type.axes.rend(); ++axis) {
    const auto found =
        std::ranges::find_if(space, [&](const Axis& other) { return other.name == axis->name; });
    CHECK(found != space.end() && found->size == axis->size, "axis {} is not in the loop",
          axis->name);
    strides[static_cast<size_t>(found - space.begin())] = stride;
    stride *= axis->size;
  }
  return strides;
}

AxisShape::AxisShape(const Type& type, std::string_view axis) {
  const auto position = static_cast<size_t>(type.find(axis));
  size = type.axes[position].size;
  inner = strides_in(type, type.axes)[position];
  outer = type.elements() / (size * inner);
}

IterationSpace collapse(std::vector<int64_t> sizes, std::vector<Strides> operands) {
  IterationSpace space;
  space.operands.resize(operands.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    bool merges = !space.sizes.empty();
    for (size_t i = 0; merges && i < operands.size(); ++i)
      merges = space.operands[i].back() == operands[i][d] * sizes[d];
    if (!merges) space.sizes.push_back(1);
    space.sizes.back() *= sizes[d];
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!merges) space.operands[i].push_back(0);
      space.operands[i].back() = operands[i][d];
    }
  }
  return space;
}

}  // namespace tessera
