// SPDX-License-Identifier: Apache-2.0
// The host side of row kernels: which form of a kernel serves a launch, and its shape.
#pragma once

#include <string_view>

#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/rows.h"

namespace tessera::cuda {

// The function `<op>_<dtype>`, which moves packs of 16 bytes, or `<op>_<dtype>_unaligned`, one
// element at a time, for rows or operands at other addresses.
struct RowForm {
  Function function;
  RowShape rows;
  LaunchShape shape;  // All rows at once.
};

class RowKernel : public CudaKernel {
 protected:
  // Uses kernels/<file>.cu, and rows and dtype of input 0. A thread holds up to `held` packs.
  RowKernel(const Graph& graph, const Node& node, Context& context, std::string_view file,
            int held);

  Context& context() const { return context_; }
  const RowForm& aligned() const { return aligned_; }
  const RowForm& unaligned() const { return unaligned_; }
  // The form for these operands.
  const RowForm& form_for(const LaunchArgs& args) const;

 private:
  Context& context_;
  RowForm aligned_, unaligned_;
  bool whole_packs_;
};

}  // namespace tessera::cuda
