// SPDX-License-Identifier: Apache-2.0
// The tiles of a checkpoint's piece: what is checksummed and read together. A tile is a run of the
// piece's row-major bytes, at most 16 MiB.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/region.h"

namespace tessera {

class Tiles {
 public:
  // Of a piece of this shape, in tiles of `tile`, which at the edges are cut off.
  Tiles(std::vector<int64_t> shape, std::vector<int64_t> tile);

  int64_t count() const { return count_; }
  // Row by row: their bytes follow each other in the piece.
  Region at(int64_t number) const;
  int64_t elements_before(int64_t number) const;

 private:
  std::vector<int64_t> shape_, tile_, grid_;
  int64_t count_ = 1;
};

}  // namespace tessera
