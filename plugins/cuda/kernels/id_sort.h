// SPDX-License-Identifier: Apache-2.0
// The order of ids by the row that they select, for kernels that treat equal ids together: a stable
// radix sort by the kernels scatter_add_count and scatter_add_place (scatter_add.cu).
#pragma once

#include <cstdint>

#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/sort_pass.h"

namespace tessera::cuda {

class IdSort {
 public:
  // Sorts `count` ids that select `selected`, whose `ids` are not read yet. Error naming `op` if
  // there are too many.
  IdSort(Context& context, const OpDef& op, const SelectedRows& selected, int64_t count);

  int64_t scratch_bytes() const { return counts_bytes() + 2 * order_bytes(); }

  // Returns where in the scratch the order will be: the positions of the ids, i32, ascending by row
  // and then by position; ids outside the rows are last.
  DeviceAddress enqueue(CUstream stream, DeviceAddress ids, DeviceAddress scratch) const;

 private:
  int64_t counts_bytes() const { return blocks_ * kDigits * 4; }
  int64_t order_bytes() const;

  Context& context_;
  Function count_function_, place_function_;
  SelectedRows selected_;
  int64_t count_;
  int64_t part_ = 0, blocks_ = 0;  // Ids of a block; blocks.
};

}  // namespace tessera::cuda
