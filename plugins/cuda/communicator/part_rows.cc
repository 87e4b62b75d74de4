// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/communicator/part_rows.h"

#include "core/base/error.h"

namespace tessera::cuda {

PartRows rows_of(const Subarray& part) {
  PartRows rows{.begin = part.begin()};
  part.for_each_run(0, part.bytes(), [&](int64_t in_array, int64_t, int64_t bytes) {
    if (rows.count == 0) rows.bytes = bytes;
    if (rows.count == 1) rows.pitch = in_array - rows.begin;
    CHECK(bytes == rows.bytes && in_array == rows.begin + rows.count * rows.pitch);
    ++rows.count;
  });
  if (rows.count <= 1) rows.pitch = rows.bytes;
  return rows;
}

}  // namespace tessera::cuda
