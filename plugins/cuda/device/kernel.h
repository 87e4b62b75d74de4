// SPDX-License-Identifier: Apache-2.0
// Kernels of the CUDA device, and their registry by op (core/devices/kernel_registry.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/devices/kernel_registry.h"
#include "core/graph/graph.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// Names of the implementations of a node.
inline constexpr std::string_view kOwnKernels = "own kernels", kCublasLtName = "cuBLASLt",
                                  kCudnnName = "cuDNN", kNcclName = "NCCL";

// A node made ready to run. enqueue() may be called while a stream is captured into a graph, so it
// must not allocate, copy to or from host memory, or wait for the device. Replays of the graph do
// not call it: what differs from step to step is in the device's memory.
class CudaKernel : public Kernel {
 public:
  virtual void enqueue(CUstream stream, const LaunchArgs& args) = 0;
  // Why enqueue() cannot be captured, for users; "" if it can.
  virtual std::string why_not_captured() const { return ""; }
  virtual std::string_view implementation() const { return kOwnKernels; }
};

// How many kernels were prepared for each implementation in this process; for reports of what was
// tested. A library's kernel may still run our own for operands that are not aligned.
void note_implementation(std::string_view name);
std::map<std::string, int> noted_implementations();

using KernelFactory = KernelFactoryOf<Context>;
using KernelRegistrar = KernelRegistrarOf<Context>;

// What kernels add to the description of a device, such as which library they call.
struct DescriptionRegistrar {
  explicit DescriptionRegistrar(std::string (*describe)(Context& context));
};
std::string description_of_libraries(Context& context);  // ", matrix products by …", or empty.

// A KernelFactory.
template <typename K>
std::unique_ptr<Kernel> make_kernel(const Graph& graph, const Node& node, Context& context) {
  return std::make_unique<K>(graph, node, context);
}

// Converts an address to a pointer for kernels.
template <typename T>
T* pointer_as(DeviceAddress address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address.value()));
}
inline CUdeviceptr pointer_of(DeviceAddress address) { return address.value(); }

// "f32" or "bf16", as in names of functions; Error naming the op for any other.
std::string_view float_suffix(const Graph& graph, const Node& node, ValueId value);

}  // namespace tessera::cuda
