// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/data_movement/copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr size_t kMostRank = 16;
constexpr int64_t kGrainBytes = 32 * 1024;  // Less is not worth a thread.

// Walks the outer dimensions of a space in row-major order; `skip` of the innermost are not walked.
class Walk {
 public:
  Walk(const Space& space, size_t skip, int64_t begin) : space_(space) {
    CHECK(space.sizes.size() <= kMostRank && space.sizes.size() >= skip);
    rank_ = space.sizes.size() - skip;
    for (size_t d = rank_; d-- > 0;) {
      position_[d] = begin % space.sizes[d];
      begin /= space.sizes[d];
      for (size_t i = 0; i < space.operands.size(); ++i) {
        offsets_[i] += position_[d] * space.operands[i][d];
      }
    }
  }
  int64_t offset(size_t operand) const { return offsets_[operand]; }
  void next() {
    for (size_t d = rank_; d-- > 0;) {
      for (size_t i = 0; i < space_.operands.size(); ++i) offsets_[i] += space_.operands[i][d];
      if (++position_[d] < space_.sizes[d]) return;
      for (size_t i = 0; i < space_.operands.size(); ++i) {
        offsets_[i] -= position_[d] * space_.operands[i][d];
      }
      position_[d] = 0;
    }
  }

 private:
  const Space& space_;
  size_t rank_ = 0;
  std::array<int64_t, kMostRank> position_ = {};
  std::array<int64_t, 2> offsets_ = {};
};

int64_t inner_size(const Space& space) { return space.sizes.empty() ? 1 : space.sizes.back(); }
int64_t inner_stride(const Space& space, size_t operand) {
  return space.sizes.empty() ? 1 : space.operands[operand].back();
}

int64_t rows_of_grain(int64_t row_bytes) {
  return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes));
}

template <typename T>
void copy_rows(const Space& space, const T* from, T* to, ThreadTeam& team) {
  const int64_t columns = inner_size(space);
  const int64_t from_step = inner_stride(space, 0), to_step = inner_stride(space, 1);
  const size_t skip = space.sizes.empty() ? 0 : 1;
  const int64_t rows = space.elements() / columns;
  if (rows == 1 && from_step == 1 && to_step == 1) {
    team.parallel(columns, kGrainBytes / static_cast<int64_t>(sizeof(T)), [&](Range part, int) {
      std::memcpy(to + part.begin, from + part.begin, static_cast<size_t>(part.size()) * sizeof(T));
    });
    return;
  }
  const int64_t grain = rows_of_grain(columns * static_cast<int64_t>(sizeof(T)));
  team.parallel(rows, grain, [&](Range part, int) {
    Walk walk(space, skip, part.begin);
    for (int64_t row = part.begin; row < part.end; ++row, walk.next()) {
      const T* const a = from + walk.offset(0);
      T* const b = to + walk.offset(1);
      if (from_step == 1 && to_step == 1) {
        std::memcpy(b, a, static_cast<size_t>(columns) * sizeof(T));
      } else {
        for (int64_t c = 0; c < columns; ++c) b[c * to_step] = a[c * from_step];
      }
    }
  });
}

// The two innermost dimensions swap roles: in the last but one the source is contiguous, in the
// last the destination is. Blocks keep the lines of both in the first-level cache.
template <typename T>
void transpose_planes(const Space& space, const T* from, T* to, ThreadTeam& team) {
  constexpr int64_t kBlock = 64 / static_cast<int64_t>(sizeof(T)) * 2;
  const size_t rank = space.sizes.size();
  const int64_t columns = space.sizes[rank - 1], rows = space.sizes[rank - 2];
  const int64_t from_step = space.operands[0][rank - 1], to_step = space.operands[1][rank - 2];
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const int64_t planes = space.elements() / (rows * columns);
  const int64_t grain = rows_of_grain(kBlock * columns * static_cast<int64_t>(sizeof(T)));
  team.parallel(planes * blocks, grain, [&](Range part, int) {
    Walk walk(space, 2, part.begin / blocks);
    for (int64_t unit = part.begin; unit < part.end; ++unit) {
      if (unit != part.begin && unit % blocks == 0) walk.next();
      const int64_t row_begin = unit % blocks * kBlock;
      const int64_t row_end = std::min(rows, row_begin + kBlock);
      const T* const a = from + walk.offset(0);
      T* const b = to + walk.offset(1);
      for (int64_t begin = 0; begin < columns; begin += kBlock) {
        const int64_t end = std::min(columns, begin + kBlock);
        for (int64_t r = row_begin; r < row_end; ++r) {
          for (int64_t c = begin; c < end; ++c) b[r * to_step + c] = a[r + c * from_step];
        }
      }
    }
  });
}

template <typename T>
void copy_as(const Space& space, const std::byte* from, std::byte* to, ThreadTeam& team) {
  const T* const a = reinterpret_cast<const T*>(from);
  T* const b = reinterpret_cast<T*>(to);
  const size_t rank = space.sizes.size();
  if (rank >= 2 && space.operands[0][rank - 1] != 1 && space.operands[1][rank - 1] == 1) {
    for (size_t d = 0; d + 1 < rank; ++d) {
      if (space.operands[0][d] != 1) continue;
      Space turned = space;  // Brings the source's contiguous dimension beside the last one.
      const auto bring = [&](std::vector<int64_t>& list) {
        std::rotate(list.begin() + static_cast<std::ptrdiff_t>(d),
                    list.begin() + static_cast<std::ptrdiff_t>(d) + 1, list.end() - 1);
      };
      bring(turned.sizes);
      for (Strides& strides : turned.operands) bring(strides);
      return transpose_planes(turned, a, b, team);
    }
  }
  copy_rows(space, a, b, team);
}

template <typename T>
void fill_as(const Space& space, uint64_t bits, std::byte* to, ThreadTeam& team) {
  const T value = static_cast<T>(bits);
  T* const b = reinterpret_cast<T*>(to);
  const int64_t columns = inner_size(space), step = inner_stride(space, 0);
  const size_t skip = space.sizes.empty() ? 0 : 1;
  const int64_t grain = rows_of_grain(columns * static_cast<int64_t>(sizeof(T)));
  team.parallel(space.elements() / columns, grain, [&](Range part, int) {
    Walk walk(space, skip, part.begin);
    for (int64_t row = part.begin; row < part.end; ++row, walk.next()) {
      T* const to_row = b + walk.offset(0);
      for (int64_t c = 0; c < columns; ++c) to_row[c * step] = value;
    }
  });
}

}  // namespace

void strided_copy(const Space& space, int64_t element_bytes, const std::byte* from, std::byte* to,
                  ThreadTeam& team) {
  if (space.elements() == 0) return;
  switch (element_bytes) {
    case 1:
      return copy_as<uint8_t>(space, from, to, team);
    case 2:
      return copy_as<uint16_t>(space, from, to, team);
    case 4:
      return copy_as<uint32_t>(space, from, to, team);
    case 8:
      return copy_as<uint64_t>(space, from, to, team);
    default:
      CHECK(false, "elements of {} bytes", element_bytes);
  }
}

void strided_fill(const Space& space, int64_t element_bytes, uint64_t bits, std::byte* to,
                  ThreadTeam& team) {
  if (space.elements() == 0) return;
  switch (element_bytes) {
    case 1:
      return fill_as<uint8_t>(space, bits, to, team);
    case 2:
      return fill_as<uint16_t>(space, bits, to, team);
    case 4:
      return fill_as<uint32_t>(space, bits, to, team);
    case 8:
      return fill_as<uint64_t>(space, bits, to, team);
    default:
      CHECK(false, "elements of {} bytes", element_bytes);
  }
}

}  // namespace tessera
