// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/error.h"
#include "core/base/region.h"

namespace tessera {
namespace {

constexpr size_t kMostRank = 16;
constexpr int64_t kGrainBytes = 32 * 1024;  // Least work of a thread.

// Iterates over a space in row-major order, without its `skip` innermost dimensions.
class Walk {
 public:
  Walk(const IterationSpace& space, size_t skip, int64_t begin) : space_(space) {
    CHECK(space.sizes.size() <= kMostRank && space.sizes.size() >= skip);
    rank_ = space.sizes.size() - skip;
    for (size_t d = rank_; d-- > 0;) {
      position_[d] = begin % space.sizes[d];
      begin /= space.sizes[d];
      for (size_t i = 0; i < space.operands.size(); ++i)
        offsets_[i] += position_[d] * space.operands[i][d];
    }
  }
  int64_t offset(size_t operand) const { return offsets_[operand]; }
  void next() {
    for (size_t d = rank_; d-- > 0;) {
      for (size_t i = 0; i < space_.operands.size(); ++i) offsets_[i] += space_.operands[i][d];
      if (++position_[d] < space_.sizes[d]) return;
      for (size_t i = 0; i < space_.operands.size(); ++i)
        offsets_[i] -= position_[d] * space_.operands[i][d];
      position_[d] = 0;
    }
  }

 private:
  const IterationSpace& space_;
  size_t rank_ = 0;
  std::array<int64_t, kMostRank> position_ = {};
  std::array<int64_t, 2> offsets_ = {};
};

int64_t inner_size(const IterationSpace& space) {
  return space.sizes.empty() ? 1 : space.sizes.back();
}
int64_t inner_stride(const IterationSpace& space, size_t operand) {
  return space.sizes.empty() ? 1 : space.operands[operand].back();
}

int64_t rows_of_grain(int64_t row_bytes) {
  return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes));
}

// Calls use(walk) at each row, a run along the innermost dimension.
template <typename Use>
void for_each_row(const IterationSpace& space, size_t element_bytes, ThreadPool& pool,
                  const Use& use) {
  const int64_t columns = inner_size(space);
  const int64_t grain = rows_of_grain(columns * static_cast<int64_t>(element_bytes));
  pool.parallel(space.elements() / columns, grain, [&](Range part, int) {
    Walk walk(space, space.sizes.empty() ? 0 : 1, part.begin);
    for (int64_t row = part.begin; row < part.end; ++row, walk.next()) use(walk);
  });
}

template <typename T>
void copy_rows(const IterationSpace& space, const T* from, T* to, ThreadPool& pool) {
  const int64_t columns = inner_size(space);
  const int64_t from_step = inner_stride(space, 0), to_step = inner_stride(space, 1);
  const bool contiguous = from_step == 1 && to_step == 1;
  if (columns == space.elements() && contiguous) {
    pool.parallel(columns, kGrainBytes / static_cast<int64_t>(sizeof(T)), [&](Range part, int) {
      std::memcpy(to + part.begin, from + part.begin, static_cast<size_t>(part.size()) * sizeof(T));
    });
    return;
  }
  for_each_row(space, sizeof(T), pool, [&](const Walk& walk) {
    const T* const a = from + walk.offset(0);
    T* const b = to + walk.offset(1);
    if (contiguous) {
      std::memcpy(b, a, static_cast<size_t>(columns) * sizeof(T));
    } else {
      for (int64_t c = 0; c < columns; ++c) b[c * to_step] = a[c * from_step];
    }
  });
}

// Transposes the two innermost dimensions: the source is contiguous in the last but one, the
// destination in the last. Blocks keep the cache lines of both in the L1 cache.
template <typename T>
void transpose_planes(const IterationSpace& space, const T* from, T* to, ThreadPool& pool) {
  constexpr int64_t kBlock = 64 / static_cast<int64_t>(sizeof(T)) * 2;
  const size_t rank = space.sizes.size();
  const int64_t columns = space.sizes[rank - 1], rows = space.sizes[rank - 2];
  const int64_t from_step = space.operands[0][rank - 1], to_step = space.operands[1][rank - 2];
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const int64_t planes = space.elements() / (rows * columns);
  const int64_t grain = rows_of_grain(kBlock * columns * static_cast<int64_t>(sizeof(T)));
  pool.parallel(planes * blocks, grain, [&](Range part, int) {
    Walk walk(space, 2, part.begin / blocks);
    for (int64_t block = part.begin; block < part.end; ++block) {
      if (block != part.begin && block % blocks == 0) walk.next();
      const int64_t row_begin = block % blocks * kBlock;
      const int64_t row_end = std::min(rows, row_begin + kBlock);
      const T* const a = from + walk.offset(0);
      T* const b = to + walk.offset(1);
      for (int64_t begin = 0; begin < columns; begin += kBlock) {
        const int64_t end = std::min(columns, begin + kBlock);
        for (int64_t r = row_begin; r < row_end; ++r)
          for (int64_t c = begin; c < end; ++c) b[r * to_step + c] = a[r + c * from_step];
      }
    }
  });
}

template <typename T>
void copy_as(const IterationSpace& space, const T* from, T* to, ThreadPool& pool) {
  const size_t rank = space.sizes.size();
  if (rank >= 2 && space.operands[0][rank - 1] != 1 && space.operands[1][rank - 1] == 1) {
    for (size_t d = 0; d + 1 < rank; ++d) {
      if (space.operands[0][d] != 1) continue;
      IterationSpace turned = space;  // The contiguous dimension of the source moves last but one.
      const auto bring = [&](std::vector<int64_t>& list) {
        std::rotate(list.begin() + static_cast<std::ptrdiff_t>(d),
                    list.begin() + static_cast<std::ptrdiff_t>(d) + 1, list.end() - 1);
      };
      bring(turned.sizes);
      for (Strides& strides : turned.operands) bring(strides);
      return transpose_planes(turned, from, to, pool);
    }
  }
  copy_rows(space, from, to, pool);
}

template <typename T>
void fill_as(const IterationSpace& space, T value, T* to, ThreadPool& pool) {
  const int64_t columns = inner_size(space), step = inner_stride(space, 0);
  for_each_row(space, sizeof(T), pool, [&](const Walk& walk) {
    T* const row = to + walk.offset(0);
    for (int64_t c = 0; c < columns; ++c) row[c * step] = value;
  });
}

// Calls use(T{}) with the unsigned integer T of this size, unless the space is empty.
template <typename Use>
void with_element(const IterationSpace& space, int64_t element_bytes, const Use& use) {
  if (space.elements() == 0) return;
  switch (element_bytes) {
    case 1:
      return use(uint8_t{});
    case 2:
      return use(uint16_t{});
    case 4:
      return use(uint32_t{});
    case 8:
      return use(uint64_t{});
    default:
      CHECK(false, "elements of {} bytes", element_bytes);
  }
}

}  // namespace

void strided_copy(const IterationSpace& space, int64_t element_bytes, const std::byte* from,
                  std::byte* to, ThreadPool& pool) {
  with_element(space, element_bytes, [&](auto element) {
    copy_as(space, reinterpret_cast<const decltype(element)*>(from),
            reinterpret_cast<decltype(element)*>(to), pool);
  });
}

void strided_fill(const IterationSpace& space, int64_t element_bytes, uint64_t bits, std::byte* to,
                  ThreadPool& pool) {
  with_element(space, element_bytes, [&](auto element) {
    element = static_cast<decltype(element)>(bits);
    fill_as(space, element, reinterpret_cast<decltype(element)*>(to), pool);
  });
}

}  // namespace tessera
