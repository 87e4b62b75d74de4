// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in softmax.cu.
#pragma once

#include "plugins/cuda/kernels/rows.h"

namespace tessera::cuda {

struct SoftmaxParameters {
  RowShape rows;
  const void* x;  // For the gradient: the softmax.
  const void* cotangent;
  void* y;  // May be x or the cotangent.
};

}  // namespace tessera::cuda
