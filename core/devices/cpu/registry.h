// SPDX-License-Identifier: Apache-2.0
// The registry of CPU kernels by op, and helpers of kernels. The file of a kernel registers it:
//   const KernelRegistrar kRegister{kGatherOp, make_gather};
#pragma once

#include <initializer_list>
#include <memory>

#include "core/devices/cpu/stream.h"
#include "core/devices/cpu/thread_pool.h"
#include "core/devices/device.h"
#include "core/graph/op.h"

namespace tessera {

// Makes the kernel of a node with local types. Pool and graph outlive the kernel; the node does
// not. Error, in terms of the user, for a case that the kernel does not support.
using KernelFactory = std::unique_ptr<Kernel> (*)(const Graph& graph, const Node& node,
                                                  ThreadPool& pool);

struct KernelRegistrar {
  KernelRegistrar(const OpDef& op, KernelFactory factory);
  KernelRegistrar(std::initializer_list<const OpDef*> ops, KernelFactory factory);
  // Registers a factory for every op of which `serves` is true and that has no kernel of its own.
  KernelRegistrar(bool (*serves)(const OpDef& op), KernelFactory factory);
};

// Returns an op's factory; null if no kernel is registered.
KernelFactory find_kernel(const OpDef& op);

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
DType vector_dtype(const Graph& graph, const Node& node, size_t i);

// Rounds a number of floats up to whole cache lines, so that threads do not share one.
inline int64_t padded_floats(int64_t count) { return (count + 15) / 16 * 16; }

// Makes a kernel of class K; a KernelFactory.
template <typename K>
std::unique_ptr<Kernel> make_kernel(const Graph& graph, const Node& node, ThreadPool& pool) {
  return std::make_unique<K>(graph, node, pool);
}

}  // namespace tessera
