// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/movement.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kWidest = 16;

// Returns the rectangle as few, longer rows where they are adjacent.
ByteRectangle flattened(ByteRectangle rectangle) {
  const bool gaps = rectangle.to_pitch != rectangle.row_bytes ||
                    (!rectangle.from.is_null() && rectangle.from_pitch != rectangle.row_bytes);
  if (!gaps) rectangle.row_bytes *= std::exchange(rectangle.rows, 1);
  if (rectangle.rows == 1) rectangle.from_pitch = rectangle.to_pitch = 0;
  if (rectangle.from.is_null()) rectangle.from_pitch = 0;
  return rectangle;
}

}  // namespace

int64_t widest_access(std::initializer_list<int64_t> lengths) {
  uint64_t all = kWidest;
  for (const int64_t length : lengths) all |= static_cast<uint64_t>(length);
  return int64_t{1} << std::countr_zero(all);
}

int lanes_shift_of(int64_t items) {
  return std::bit_width(static_cast<uint32_t>(std::clamp<int64_t>(items, 1, 32) - 1));
}

int64_t batches_before(const Type& table, int64_t axis) {
  int64_t batches = 1;
  for (int64_t i = 0; i < axis; ++i) batches *= table.axes[static_cast<size_t>(i)].size;
  return batches;
}

Divider ids_of_batch(int64_t ids, const Type& table, int64_t axis) {
  return make_divider(
      static_cast<uint64_t>(std::max<int64_t>(1, ids / batches_before(table, axis))));
}

AccessFunctions::AccessFunctions(Context& context, std::string_view file, std::string_view prefix) {
  for (size_t i = 0; i < functions_.size(); ++i)
    functions_[i] = context.function(file, fmt::format("{}{}", prefix, 8 << i));
}

const Function& AccessFunctions::of(int64_t bytes) const {
  return functions_.at(static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(bytes))));
}

template <int operands>
StridedSpace<operands> strided(const IterationSpace& space, const OpDef& op) {
  const size_t rank = space.sizes.size();
  if (rank > kMostRank)
    fail("{}: {} axes that cannot be merged, expected at most {}; merge_axes first", op.name, rank,
         kMostRank);
  StridedSpace<operands> result;
  result.rank = static_cast<int>(rank);
  for (size_t d = 0; d < rank; ++d) {
    result.sizes[d] = make_divider(static_cast<uint64_t>(space.sizes[d]));
    for (size_t i = 0; i < operands; ++i) result.strides[i][d] = space.operands[i][d];
  }
  return result;
}
template StridedSpace<1> strided(const IterationSpace&, const OpDef&);
template StridedSpace<2> strided(const IterationSpace&, const OpDef&);

void RunCopy::enqueue(CUstream stream, const OpDef& op, const IterationSpace& space,
                      int64_t element_bytes, DeviceAddress from, DeviceAddress to) const {
  int64_t access =
      widest_access({length_of(from), length_of(to), space.sizes.back() * element_bytes});
  for (const Strides& strides : space.operands)
    for (size_t d = 0; d + 1 < strides.size(); ++d)
      access = widest_access({access, strides[d] * element_bytes});
  IterationSpace units = space;
  units.sizes.back() /= access / element_bytes;
  for (Strides& strides : units.operands)
    for (size_t d = 0; d + 1 < strides.size(); ++d) strides[d] /= access / element_bytes;
  const StridedCopy p{.from = pointer_as<const void>(from),
                      .to = pointer_as<void>(to),
                      .units = units.elements(),
                      .space = strided<2>(units, op)};
  launch(context_, stream, functions_.of(access), elementwise_shape(context_, p.units), p);
}

void RectangleCopy::enqueue(CUstream stream, std::span<const ByteRectangle> rectangles) const {
  while (!rectangles.empty()) {
    const size_t count = std::min<size_t>(rectangles.size(), kMostRectangles);
    std::array<ByteRectangle, kMostRectangles> group;
    std::transform(rectangles.begin(), rectangles.begin() + static_cast<std::ptrdiff_t>(count),
                   group.begin(), flattened);
    rectangles = rectangles.subspan(count);
    int64_t access = kWidest;
    for (size_t i = 0; i < count; ++i)
      access = widest_access({access, length_of(group[i].from), length_of(group[i].to),
                              group[i].row_bytes, group[i].from_pitch, group[i].to_pitch});
    Rectangles p = {};
    int64_t most_units = 0;
    for (size_t i = 0; i < count; ++i) {
      const ByteRectangle& each = group[i];
      const int64_t columns = each.row_bytes / access;
      p.list[i] = {.from = pointer_as<const void>(each.from),
                   .to = pointer_as<void>(each.to),
                   .pattern = each.pattern,
                   .units = each.rows * columns,
                   .columns = make_divider(static_cast<uint64_t>(std::max<int64_t>(1, columns))),
                   .from_pitch = each.from_pitch / access,
                   .to_pitch = each.to_pitch / access};
      most_units = std::max(most_units, p.list[i].units);
    }
    LaunchShape shape = elementwise_shape(context_, most_units);
    shape.blocks_y = static_cast<int64_t>(count);
    launch(context_, stream, functions_.of(access), shape, p);
  }
}

void RectangleCopy::copy(CUstream stream, DeviceAddress from, DeviceAddress to,
                         int64_t bytes) const {
  const ByteRectangle whole{.from = from, .to = to, .row_bytes = bytes};
  enqueue(stream, {&whole, 1});
}

void RectangleCopy::zero(CUstream stream, DeviceAddress to, int64_t bytes) const {
  const ByteRectangle whole{.to = to, .row_bytes = bytes};
  enqueue(stream, {&whole, 1});
}

}  // namespace tessera::cuda
