// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/checkpoint_tiles.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/error.h"

namespace tessera {
namespace {

bool holds(const Hdf5Block& whole, const Hdf5Block& part) {
  for (size_t i = 0; i < whole.shape.size(); ++i)
    if (part.offset[i] < whole.offset[i] ||
        part.offset[i] + part.shape[i] > whole.offset[i] + whole.shape[i])
      return false;
  return true;
}

// Where the element of the array at `index` lies in a block.
int64_t position(const Hdf5Block& block, const std::vector<int64_t>& index) {
  int64_t element = 0;
  for (size_t i = 0; i < index.size(); ++i)
    element = element * block.shape[i] + index[i] - block.offset[i];
  return element;
}

// Blocks of one shape at multiples of it, as a mesh cuts arrays.
bool are_grid(const std::vector<Hdf5Block>& blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [&](const Hdf5Block& block) {
    if (block.shape != blocks.front().shape) return false;
    for (size_t i = 0; i < block.shape.size(); ++i)
      if (block.shape[i] == 0 || block.offset[i] % block.shape[i] != 0) return false;
    return true;
  });
}

}  // namespace

Tiles::Tiles(std::vector<int64_t> shape, std::vector<int64_t> tile)
    : shape_(std::move(shape)), tile_(std::move(tile)) {
  CHECK(shape_.size() == tile_.size());
  for (size_t i = 0; i < shape_.size(); ++i) {
    CHECK(tile_[i] > 0 || shape_[i] == 0);
    grid_.push_back(shape_[i] == 0 ? 0 : (shape_[i] + tile_[i] - 1) / tile_[i]);
    count_ *= grid_.back();
  }
}

Hdf5Block Tiles::at(int64_t number) const {
  Hdf5Block block{shape_, shape_};
  for (size_t i = shape_.size(); i-- > 0; number /= grid_[i]) {
    block.offset[i] = number % grid_[i] * tile_[i];
    block.shape[i] = std::min(tile_[i], shape_[i] - block.offset[i]);
  }
  return block;
}

int64_t Tiles::elements_before(int64_t number) const {
  return position({std::vector<int64_t>(shape_.size(), 0), shape_}, at(number).offset);
}

int64_t block_elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

bool intersect(const Hdf5Block& a, const Hdf5Block& b, Hdf5Block* common) {
  *common = b;
  for (size_t i = 0; i < b.shape.size(); ++i) {
    const int64_t begin = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.shape[i], b.offset[i] + b.shape[i]);
    if (begin >= end) return false;
    common->offset[i] = begin;
    common->shape[i] = end - begin;
  }
  return true;
}

bool disjoint(const std::vector<Hdf5Block>& blocks) {
  if (blocks.size() < 2) return true;
  if (are_grid(blocks)) {
    std::set<std::vector<int64_t>> offsets;
    for (const Hdf5Block& block : blocks) offsets.insert(block.offset);
    return offsets.size() == blocks.size();
  }
  Hdf5Block common;
  for (size_t i = 0; i < blocks.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (intersect(blocks[i], blocks[j], &common)) return false;
  return true;
}

void copy_common(const Hdf5Block& source, std::span<const std::byte> from, const Hdf5Block& target,
                 std::span<std::byte> to, int64_t element_bytes) {
  Hdf5Block common;
  if (!intersect(source, target, &common)) return;
  const size_t rank = std::max<size_t>(common.shape.size(), 1);
  const int64_t row = common.shape.empty() ? 1 : common.shape.back();
  const auto row_bytes = static_cast<size_t>(row * element_bytes);
  std::vector<int64_t> index = common.offset;
  for (int64_t done = 0; done < block_elements(common.shape); done += row) {
    std::memcpy(to.data() + position(target, index) * element_bytes,
                from.data() + position(source, index) * element_bytes, row_bytes);
    for (size_t i = rank - 1; i-- > 0;) {  // The next row.
      if (++index[i] < common.offset[i] + common.shape[i]) break;
      index[i] = common.offset[i];
    }
  }
}

std::span<std::byte> run_within(const Hdf5Block& part, const Hdf5Block& whole,
                                std::span<std::byte> bytes, int64_t element_bytes) {
  if (!holds(whole, part)) return {};
  size_t axis = 0;
  while (axis < part.shape.size() && part.shape[axis] == 1) ++axis;
  for (size_t i = axis + 1; i < part.shape.size(); ++i)
    if (part.shape[i] != whole.shape[i]) return {};
  return bytes.subspan(static_cast<size_t>(position(whole, part.offset) * element_bytes),
                       static_cast<size_t>(block_elements(part.shape) * element_bytes));
}

}  // namespace tessera
