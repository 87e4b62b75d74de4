// SPDX-License-Identifier: Apache-2.0
// The kernel of elementwise ops, foldable generators and fused nodes: compiled when it is prepared.
#include <memory>
#include <vector>

#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/nvrtc.h"
#include "plugins/cuda/kernels/elementwise/program.h"

namespace tessera::cuda {
namespace {

class ElementwiseKernel final : public CudaKernel {
 public:
  ElementwiseKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context), program_(make_program(graph, node)) {
    shape_ = elementwise_shape(context, program_.items);
    const CompiledText& compiled = compile_text(program_.name, program_.text);
    function_ = context.compiled_function(compiled.key, compiled.ptx, program_.name);
    addresses_.resize(program_.inputs.size() + program_.results.size());
    for (DeviceAddress& address : addresses_) pointers_.push_back(&address);
  }

  // A thread reads its elements of all operands before it writes any, so an operand that lies as
  // the result does may be overwritten.
  bool may_overwrite(int64_t output, int64_t input) const override {
    const OperandLayout& result = program_.results[static_cast<size_t>(output)];
    for (const OperandLayout& each : program_.inputs)
      if (each.operand == static_cast<size_t>(input))
        return each.strides == result.strides &&
               dtype_bytes(each.dtype) == dtype_bytes(result.dtype);
    return false;
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    size_t next = 0;
    for (const OperandLayout& each : program_.inputs)
      addresses_[next++] = args.inputs[each.operand];
    for (const OperandLayout& each : program_.results)
      addresses_[next++] = args.outputs[each.operand];
    launch_function(context_, stream, function_, shape_, pointers_.data());
  }

 private:
  Context& context_;
  ElementwiseProgram program_;
  Function function_;
  LaunchShape shape_;
  std::vector<DeviceAddress> addresses_;  // The arguments of a launch, and where they are.
  std::vector<void*> pointers_;
};

const KernelRegistrar kRegisterElementwise{has_program, make_kernel<ElementwiseKernel>};

}  // namespace
}  // namespace tessera::cuda
