// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/registry.h"

#include "core/base/error.h"

namespace tessera {

DType vector_dtype(const Graph& graph, const Node& node, size_t i) {
  const DType dtype = graph.type(node.inputs[i]).dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: the CPU backend computes {} in f32 and bf16, not in {}; cast {}", node.site.text(),
         node.op->name, dtype_name(dtype), graph.describe(node.inputs[i]));
  return dtype;
}

}  // namespace tessera
