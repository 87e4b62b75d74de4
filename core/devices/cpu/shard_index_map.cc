// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/shard_index_map.h"

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "core/ops/rounding.h"

namespace tessera {

using Numbers = std::vector<int64_t>;

ShardIndexMap::ShardIndexMap(const Type& anchor, const Attributes& attributes) {
  for (const Axis& axis : anchor.axes) shape_.push_back(axis.size);
  const size_t rank = shape_.size();
  origin_ = attributes.get_or(key::kOrigin, Numbers(rank, 0));
  const Numbers extent = attributes.get_or(key::kExtent, shape_);
  rows_ = attributes.get_or(key::kRows, Numbers());
  CHECK(origin_.size() == rank && extent.size() == rank, "an extent of {} axes for {}",
        extent.size(), anchor.text());
  strides_.assign(rank, 1);
  for (size_t d = rank; d-- > 0;) {
    const bool has_rows = d == 0 && !rows_.empty();
    CHECK(origin_[d] >= 0 && (has_rows || origin_[d] + shape_[d] <= extent[d]),
          "[{}, {}) along an axis of {} elements", origin_[d], origin_[d] + shape_[d], extent[d]);
    if (d > 0) strides_[d - 1] = strides_[d] * extent[d];
    if (d > 0) example_elements_ *= shape_[d];
    if (outer_ == 0 && shape_[d] != extent[d]) outer_ = d;
  }
  if (!rows_.empty()) outer_ = std::max<size_t>(outer_, 1);
  for (size_t d = outer_; d < rank; ++d) run_ *= shape_[d];
}

int64_t ShardIndexMap::offset_of(int64_t number, size_t outer, Examples examples) const {
  int64_t offset = 0;
  for (size_t d = std::min(outer + 1, shape_.size()); d-- > 0;) {
    int64_t index = origin_[d];
    if (d < outer) {
      index += number % shape_[d];
      number /= shape_[d];
    }
    if (d == 0 && !rows_.empty()) index = rows_[static_cast<size_t>(index - origin_[0])];
    if (d == 0) index = examples.first + index * examples.stride;
    offset += index * strides_[d];
  }
  return offset;
}

}  // namespace tessera
