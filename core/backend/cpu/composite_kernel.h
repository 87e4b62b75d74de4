// SPDX-License-Identifier: Apache-2.0
// What the kernels of composite ops share: typed operands, the dtypes they serve, their factories.
#pragma once

#include <memory>

#include "core/backend/cpu/registry.h"
#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {

template <typename T>
const T* input_as(const HostArgs& args, size_t i) {
  return reinterpret_cast<const T*>(args.inputs[i]);
}
template <typename T>
T* output_as(const HostArgs& args, size_t i) {
  return reinterpret_cast<T*>(args.outputs[i]);
}

// The operand's dtype, f32 or bf16; Error for another.
inline DType vector_dtype(const Graph& graph, const Node& node, size_t i) {
  const DType dtype = graph.type(node.inputs[i]).dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: no CPU kernel for {}; cast it to f32 or bf16", node.op->name, dtype_name(dtype));
  return dtype;
}

inline float float_attribute(const Node& node, std::string_view name) {
  return static_cast<float>(node.attributes.get<double>(name));
}
inline bool flag_attribute(const Node& node, std::string_view name) {
  return node.attributes.get<int64_t>(name) != 0;
}

// Floats to whole cache lines, so that threads' parts of scratch memory do not share one.
inline int64_t padded_floats(int64_t count) { return (count + 15) / 16 * 16; }

// A KernelFactory.
template <typename K>
std::unique_ptr<Kernel> make_kernel(const Graph& graph, const Node& node, ThreadTeam& team) {
  return std::make_unique<K>(graph, node, team);
}

}  // namespace tessera
