// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/id_sort.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kPartOfBlock = 2048;  // The least ids of a block.

}  // namespace

IdSort::IdSort(Context& context, const OpDef& op, const SelectedRows& selected, int64_t count)
    : context_(context),
      count_function_(context.function("scatter_add", "scatter_add_count")),
      place_function_(context.function("scatter_add", "scatter_add_place")),
      selected_(selected),
      count_(count) {
  if (count > std::numeric_limits<int32_t>::max())
    fail("{}: {} ids on one device, expected at most 2^31 - 1; use more devices or a smaller batch",
         op.name, count);
  const int64_t blocks = std::clamp<int64_t>(count / kPartOfBlock, 1, int64_t{kMostSortBlocks});
  part_ = (count + blocks * kDigits - 1) / (blocks * kDigits) * kDigits;
  blocks_ = part_ == 0 ? 0 : (count + part_ - 1) / part_;
}

int64_t IdSort::order_bytes() const { return (count_ * 4 + 63) / 64 * 64; }

DeviceAddress IdSort::enqueue(CUstream stream, DeviceAddress ids, DeviceAddress scratch) const {
  DeviceAddress next = scratch + counts_bytes(), other = next + order_bytes();
  if (count_ == 0) return next;
  SortPass p{.selected = selected_,
             .order = nullptr,
             .next_order = nullptr,
             .counts = pointer_as<uint32_t>(scratch),
             .updates = count_,
             .part = part_,
             .shift = 0};
  p.selected.ids = pointer_as<const int32_t>(ids);
  const LaunchShape shape{.blocks_x = blocks_, .threads = kDigits};
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(selected_.all_rows)));
  for (; p.shift < std::max(bits, 1); p.shift += kDigitBits) {
    p.next_order = pointer_as<int32_t>(next);
    launch(context_, stream, count_function_, shape, p);
    launch(context_, stream, place_function_, shape, p);
    p.order = p.next_order;
    std::swap(next, other);
  }
  return other;
}

}  // namespace tessera::cuda
