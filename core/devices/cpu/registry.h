// SPDX-License-Identifier: Apache-2.0
// The registry of CPU kernels by op (core/devices/kernel_registry.h), and helpers of kernels.
#pragma once

#include <memory>

#include "core/base/error.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/cpu/thread_pool.h"
#include "core/devices/device.h"
#include "core/devices/kernel_registry.h"

namespace tessera {

using KernelFactory = KernelFactoryOf<ThreadPool>;
using KernelRegistrar = KernelRegistrarOf<ThreadPool>;

// Returns an op's factory; null if no kernel is registered.
inline KernelFactory find_kernel(const OpDef& op) { return KernelRegistrar::find(op, 0); }

template <typename T>
const T* input_as(const HostArgs& args, size_t i) {
  return reinterpret_cast<const T*>(args.inputs[i]);
}
template <typename T>
T* output_as(const HostArgs& args, size_t i) {
  return reinterpret_cast<T*>(args.outputs[i]);
}

inline float* scratch_floats(const HostArgs& args) {
  return reinterpret_cast<float*>(args.scratch);
}
inline int64_t float_bytes(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }

// Returns the dtype of an operand, f32 or bf16; Error for any other.
inline DType vector_dtype(const Graph& graph, const Node& node, size_t i) {
  const DType dtype = graph.type(node.inputs[i]).dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: the CPU backend computes {} in f32 and bf16, not in {}; cast {}", node.site.text(),
         node.op->name, dtype_name(dtype), graph.describe(node.inputs[i]));
  return dtype;
}

// Rounds a number of floats up to whole cache lines, so that threads do not share one.
inline int64_t padded_floats(int64_t count) { return (count + 15) / 16 * 16; }

// Makes a kernel of class K; a KernelFactory.
template <typename K>
std::unique_ptr<Kernel> make_kernel(const Graph& graph, const Node& node, ThreadPool& pool) {
  return std::make_unique<K>(graph, node, pool);
}

}  // namespace tessera
