// SPDX-License-Identifier: Apache-2.0
// The tiles of a checkpoint's piece: what is checksummed and read together. A tile is a run of the
// piece's row-major bytes, at most 16 MiB.
#pragma once

#include <cstdint>
#include <vector>

#include "core/io/hdf5.h"

namespace tessera {

class Tiles {
 public:
  // Of a piece of this shape, in tiles of `tile`, which at the edges are cut off.
  Tiles(std::vector<int64_t> shape, std::vector<int64_t> tile);

  int64_t count() const { return count_; }
  // Row by row: their bytes follow each other in the piece.
  Hdf5Block at(int64_t number) const;
  int64_t elements_before(int64_t number) const;

 private:
  std::vector<int64_t> shape_, tile_, grid_;
  int64_t count_ = 1;
};

int64_t block_elements(const std::vector<int64_t>& shape);

// The part that two blocks of one array share; false if none.
bool intersect(const Hdf5Block& a, const Hdf5Block& b, Hdf5Block* common);

// Whether no two of these blocks of one array share an element.
bool disjoint(const std::vector<Hdf5Block>& blocks);

// Copies what `source` and `target`, blocks of one array held row-major, have in common.
void copy_common(const Hdf5Block& source, std::span<const std::byte> from, const Hdf5Block& target,
                 std::span<std::byte> to, int64_t element_bytes);

// The bytes of `part` in those of `whole`, both blocks of one array, if they are one run of them;
// else nothing.
std::span<std::byte> run_within(const Hdf5Block& part, const Hdf5Block& whole,
                                std::span<std::byte> bytes, int64_t element_bytes);

}  // namespace tessera
