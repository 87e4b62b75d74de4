// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/noise_parts.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/random.h"
#include "core/devices/iteration_space.h"
#include "core/ops/reshard.h"
#include "core/ops/rounding.h"

namespace tessera::cuda {
namespace {

using Numbers = std::vector<int64_t>;

int64_t product(const Numbers& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

class PartLister {
 public:
  explicit PartLister(const Node& node)
      : key_(random_key(node.attributes.get(key::kSeed), node.attributes.get(key::kStream))) {}

  // The next elements of the shard: a block of this shape, from element `first` of the stream on.
  void add(const Numbers& shape, const Strides& strides, int64_t first) {
    const IterationSpace space = collapse(shape, {strides});
    if (space.sizes.size() <= NoiseSpace::kMostRank) return add_space(space, first);
    for (int64_t i = 0; i < space.sizes[0]; ++i)
      add({space.sizes.begin() + 1, space.sizes.end()},
          {space.operands[0].begin() + 1, space.operands[0].end()},
          first + i * space.operands[0][0]);
  }
  std::vector<NoisePart>& parts() { return parts_; }

 private:
  void add_space(const IterationSpace& space, int64_t first) {
    const int64_t begin = parts_.empty() ? 0 : parts_.back().begin + parts_.back().elements;
    NoisePart part{.begin = begin, .elements = product(space.sizes)};
    part.noise.key = key_, part.noise.first = first;
    part.noise.rank = static_cast<int>(space.sizes.size());
    const size_t last = space.sizes.size() - 1;
    bool whole = first % 4 == 0;
    for (size_t d = 0; d < space.sizes.size(); ++d) {
      const int64_t size = space.sizes[d], stride = space.operands[0][d];
      part.noise.sizes[d] = make_divider(static_cast<uint64_t>(size));
      part.noise.strides[d] = stride;
      whole = whole && (d == last ? stride == 1 && (last == 0 || size % 4 == 0) : stride % 4 == 0);
    }
    part.noise.whole_blocks = whole;
    parts_.push_back(part);
  }

  uint64_t key_;
  std::vector<NoisePart> parts_;
};

}  // namespace

std::vector<NoisePart> noise_parts(const Type& type, const Node& node) {
  const Attributes& attributes = node.attributes;
  const Numbers shape = sizes_of(type.axes), extent = attributes.get_or(key::kExtent, shape);
  const Numbers origin = attributes.get_or(key::kOrigin, Numbers(shape.size(), 0));
  const Numbers rows = attributes.get_or(key::kRows, Numbers());
  Strides strides(shape.size());
  int64_t stride = 1, first = attributes.get(key::kFirst);
  for (size_t d = shape.size(); d-- > 0; stride *= extent[d]) {
    strides[d] = stride;
    if (d > 0 || rows.empty()) first += origin[d] * stride;
  }
  PartLister lister(node);
  if (rows.empty()) {
    lister.add(shape, strides, first);
    return std::move(lister.parts());
  }
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {  // Consecutive rows.
    for (end = begin + 1; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    Numbers block = shape;
    block[0] = static_cast<int64_t>(end - begin);
    lister.add(block, strides, first + rows[begin] * strides[0]);
  }
  return std::move(lister.parts());
}

}  // namespace tessera::cuda
