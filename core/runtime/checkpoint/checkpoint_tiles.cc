// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/checkpoint_tiles.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {
Tiles::Tiles(std::vector<int64_t> shape, std::vector<int64_t> tile)
    : shape_(std::move(shape)), tile_(std::move(tile)) {
  CHECK(shape_.size() == tile_.size());
  for (size_t i = 0; i < shape_.size(); ++i) {
    CHECK(tile_[i] > 0 || shape_[i] == 0);
    grid_.push_back(shape_[i] == 0 ? 0 : (shape_[i] + tile_[i] - 1) / tile_[i]);
    count_ *= grid_.back();
  }
}

Region Tiles::at(int64_t number) const {
  Region region = Region::whole(shape_);
  for (size_t i = shape_.size(); i-- > 0; number /= grid_[i]) {
    region.origin[i] = number % grid_[i] * tile_[i];
    region.shape[i] = std::min(tile_[i], shape_[i] - region.origin[i]);
  }
  return region;
}

int64_t Tiles::elements_before(int64_t number) const {
  return Subarray(Region::whole(shape_), at(number), 1).begin();
}

}  // namespace tessera
