// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in peer_reduce.cu: the sum or maximum over the GPUs of a group, whose
// memory the GPU reads directly.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

inline constexpr int kMostPeers = 32;

// to[i] = from[0][j] + from[1][j] + …, for rows of elements j that are `pitch` apart. Lengths are
// in accesses: of 16 bytes if `wide`, of an element otherwise. `to` is one of the sources at j or
// does not overlap any.
struct PeerReduce {
  const void* from[kMostPeers];  // At the first row.
  void* to;
  int64_t accesses;  // Accesses of all rows.
  Divider columns;
  int64_t pitch;
  int peers;
  bool wide;
};

}  // namespace tessera::cuda
