// SPDX-License-Identifier: Apache-2.0
// Shared by kernels that move data, on the host: the width of an access, strided loops, and copies
// of rectangles of bytes.
#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "core/devices/iteration_space.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/rectangles.h"
#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// The widest access, in bytes (1 to 16), of which all of these lengths and addresses are multiples.
int64_t widest_access(std::initializer_list<int64_t> lengths);
inline int64_t length_of(DeviceAddress address) { return static_cast<int64_t>(address.value()); }

// 2^lanes_shift_of(items) threads work on one row of this many items: up to a warp, and fewer on
// short rows, so that few threads are idle.
int lanes_shift_of(int64_t items);

// Tables whose rows ids select (core/ops/gather.h): the number of batches, which are the axes
// before `axis`, and the ids of each.
int64_t batches_before(const Type& table, int64_t axis);
Divider ids_of_batch(int64_t ids, const Type& table, int64_t axis);

// The functions of one kernel for accesses of 1, 2, 4, 8 and 16 bytes: "gather_b8" to
// "gather_b128", with the prefix "gather_b".
class AccessFunctions {
 public:
  AccessFunctions(Context& context, std::string_view file, std::string_view prefix);
  const Function& of(int64_t bytes) const;

 private:
  std::array<Function, 5> functions_;
};

// The space as kernels take it. Error, naming `op`, if it has too many dimensions.
template <int operands>
StridedSpace<operands> strided(const IterationSpace& space, const OpDef& op);
extern template StridedSpace<1> strided(const IterationSpace&, const OpDef&);
extern template StridedSpace<2> strided(const IterationSpace&, const OpDef&);

// Copies runs of consecutive elements between strided arrays.
class RunCopy {
 public:
  explicit RunCopy(Context& context)
      : context_(context), functions_(context, "data_movement", "copy_strided_b") {}

  // space.operands[0] are the strides of `from` in elements, [1] those of `to`; the last dimension
  // is consecutive in both. Error naming `op` if the space has too many dimensions.
  void enqueue(CUstream stream, const OpDef& op, const IterationSpace& space, int64_t element_bytes,
               DeviceAddress from, DeviceAddress to) const;

 private:
  Context& context_;
  AccessFunctions functions_;
};

// Rows of bytes, copied or filled.
struct ByteRectangle {
  DeviceAddress from = {};  // Null: filled with `pattern`, an element repeated.
  DeviceAddress to = {};
  int64_t rows = 1, row_bytes = 0;
  int64_t from_pitch = 0, to_pitch = 0;  // Bytes from row to row.
  uint64_t pattern = 0;
};

class RectangleCopy {
 public:
  explicit RectangleCopy(Context& context)
      : context_(context), functions_(context, "rectangles", "copy_rectangles_b") {}

  // The rectangles must not overlap.
  void enqueue(CUstream stream, std::span<const ByteRectangle> rectangles) const;
  void copy(CUstream stream, DeviceAddress from, DeviceAddress to, int64_t bytes) const;
  void zero(CUstream stream, DeviceAddress to, int64_t bytes) const;

 private:
  Context& context_;
  AccessFunctions functions_;
};

}  // namespace tessera::cuda
