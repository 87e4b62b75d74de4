// SPDX-License-Identifier: Apache-2.0
#include "core/io/block_copy.h"

#include <cstring>

namespace tessera {
namespace {

// copy(offset in the array, offset in the block, bytes) for each run of consecutive bytes.
template <typename Copy>
void for_each_run(const BlockPlace& place, const Copy& copy) {
  const std::vector<int64_t>& shape = place.block.shape;
  size_t inner = shape.size();  // Axes from here on are whole.
  int64_t run = place.element_bytes;
  while (inner > 0 && shape[inner - 1] == place.array_shape[inner - 1]) run *= shape[--inner];
  if (inner > 0) run *= shape[--inner];
  int64_t runs = run == 0 ? 0 : 1;
  for (size_t i = 0; i < inner; ++i) runs *= shape[i];
  std::vector<int64_t> index(inner, 0);
  for (int64_t number = 0; number < runs; ++number) {
    int64_t at = 0;
    for (size_t i = 0; i < shape.size(); ++i)
      at = at * place.array_shape[i] + place.block.origin[i] + (i < inner ? index[i] : 0);
    copy(at * place.element_bytes, number * run, run);
    for (size_t i = inner; i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace

bool BlockPlace::is_contiguous() const {
  bool whole_so_far = true;  // Of the axes further in.
  for (size_t i = array_shape.size(); i-- > 0;) {
    if (!whole_so_far && block.shape[i] != 1) return false;
    whole_so_far = whole_so_far && block.shape[i] == array_shape[i];
  }
  return true;
}

int64_t BlockPlace::begin_bytes() const {
  int64_t at = 0;
  for (size_t i = 0; i < array_shape.size(); ++i) at = at * array_shape[i] + block.origin[i];
  return at * element_bytes;
}

int64_t BlockPlace::block_bytes() const {
  int64_t bytes = element_bytes;
  for (const int64_t size : block.shape) bytes *= size;
  return bytes;
}

void take_block(const BlockPlace& place, const std::byte* array, std::byte* block) {
  for_each_run(place, [&](int64_t in_array, int64_t in_block, int64_t bytes) {
    std::memcpy(block + in_block, array + in_array, static_cast<size_t>(bytes));
  });
}

void put_block(const BlockPlace& place, const std::byte* block, std::byte* array) {
  for_each_run(place, [&](int64_t in_array, int64_t in_block, int64_t bytes) {
    std::memcpy(array + in_array, block + in_block, static_cast<size_t>(bytes));
  });
}

}  // namespace tessera
