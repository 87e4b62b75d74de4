// SPDX-License-Identifier: Apache-2.0
// Sums and maxima of the stand-in for NCCL.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/dtype.h"
#include "plugins/cuda/communicator/nccl.h"
#include "tests/virtual_gpu/memory.h"

namespace tessera::cuda::nccl {

inline size_t size_of(DataType type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
    case ncclFloat16:
      return 2;
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

using tessera::BFloat16;
inline BFloat16 operator+(BFloat16 a, BFloat16 b) {
  return BFloat16(static_cast<float>(a) + static_cast<float>(b));
}
inline bool operator<(BFloat16 a, BFloat16 b) {
  return static_cast<float>(a) < static_cast<float>(b);
}

// Adds in the order of a ring. Each rank gets the sum of one part of the array; the sum of that
// part begins at the next rank.
template <typename T>
std::string reduce(const std::vector<std::string>& operands, RedOp op) {
  const size_t ranks = operands.size(), count = operands[0].size() / sizeof(T);
  std::string result(operands[0].size(), '\0');
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](size_t rank) {
      T value;
      std::memcpy(&value, operands[rank % ranks].data() + i * sizeof(T), sizeof(T));
      return value;
    };
    const size_t first = i * ranks / count + 1;
    T total = at(first);
    for (size_t k = 1; k < ranks; ++k) {
      const T value = at(first + k);
      total = op == ncclSum ? static_cast<T>(total + value) : total < value ? value : total;
    }
    std::memcpy(result.data() + i * sizeof(T), &total, sizeof(T));
  }
  return result;
}

inline std::string reduce(const std::vector<std::string>& operands, DataType type, RedOp op) {
  switch (type) {
    case ncclFloat32:
      return reduce<float>(operands, op);
    case ncclFloat64:
      return reduce<double>(operands, op);
    case ncclBfloat16:
      return reduce<BFloat16>(operands, op);
    case ncclInt32:
      return reduce<int32_t>(operands, op);
    case ncclUint32:
      return reduce<uint32_t>(operands, op);
    default:
      throw virtual_gpu::Fault{
          fmt::format("NCCL's type {} is not known here", static_cast<int>(type))};
  }
}

}  // namespace tessera::cuda::nccl
