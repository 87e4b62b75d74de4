// SPDX-License-Identifier: Apache-2.0
// Launches a kernel over any number of tensors, by tables (tensor_table.h).
#pragma once

#include "plugins/cuda/device/context.h"
#include "plugins/cuda/kernels/tensor_table.h"

namespace tessera::cuda {

// `Parameters` has a TensorTable `table`.
template <typename Parameters>
class TensorLaunches {
 public:
  TensorLaunches(const Context& context, CUstream stream, const Function& function,
                 const Parameters& parameters)
      : context_(context), stream_(stream), function_(function), p_(parameters) {
    static_assert(sizeof(Parameters) <= kMostArgumentBytes);
  }

  template <typename Entry>
  void add(Entry tensor) {
    if (p_.table.tensors == p_.table.kMost) finish();
    tensor.first_block = static_cast<uint32_t>(blocks_);
    p_.table.entries[p_.table.tensors++] = tensor;
    blocks_ += p_.table.blocks_of(tensor.elements);
  }

  // Launches what is left.
  void finish() {
    launch(context_, stream_, function_, {.blocks_x = blocks_ - p_.table.blocks_before}, p_);
    p_.table.tensors = 0, p_.table.blocks_before = static_cast<uint32_t>(blocks_);
  }

 private:
  const Context& context_;
  CUstream stream_;
  const Function& function_;
  Parameters p_;
  int64_t blocks_ = 0;  // Blocks of all launches.
};

}  // namespace tessera::cuda
