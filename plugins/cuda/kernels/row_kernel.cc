// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/row_kernel.h"

#include <algorithm>

#include <fmt/format.h>

namespace tessera::cuda {

RowKernel::RowKernel(const Graph& graph, const Node& node, Context& context, std::string_view file,
                     int held)
    : context_(context) {
  const Type& x = graph.type(node.inputs[0]);
  const std::string name =
      fmt::format("{}_{}", node.op->name, float_suffix(graph, node, node.inputs[0]));
  const int64_t width = x.axes.back().size;
  const int pack = static_cast<int>(16 / dtype_bytes(x.dtype));
  whole_packs_ = width % pack == 0;
  const auto form = [&](const std::string& function, int elements) {
    const RowShape rows = row_shape(x.elements() / width, width, elements, held);
    return RowForm{context.function(file, function),
                   rows,
                   {.blocks_x = row_blocks(rows), .threads = row_threads(rows)}};
  };
  aligned_ = form(name, pack);
  unaligned_ = form(name + "_unaligned", 1);
}

const RowForm& RowKernel::form_for(const LaunchArgs& args) const {
  const auto at_16_bytes = [](DeviceAddress address) { return address.value() % 16 == 0; };
  const bool all = whole_packs_ && std::ranges::all_of(args.inputs, at_16_bytes) &&
                   std::ranges::all_of(args.outputs, at_16_bytes);
  return all ? aligned_ : unaligned_;
}

}  // namespace tessera::cuda
