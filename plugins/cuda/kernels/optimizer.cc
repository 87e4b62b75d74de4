// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/ops/optimizer.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {
namespace {

class AdamKernel final : public CudaKernel {
 public:
  AdamKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context), function_(context.function("optimizer", "adam_update")) {
    const auto number = [&](std::string_view name) { return node.attributes.get<double>(name); };
    p_.elements = graph.type(node.inputs[0]).elements();
    p_.beta1 = number("beta1");
    p_.beta2 = number("beta2");
    p_.log2_beta1 = std::log2(p_.beta1);
    p_.log2_beta2 = std::log2(p_.beta2);
    p_.epsilon = float_attribute(node, "epsilon");
    p_.epsilon_root = float_attribute(node, "epsilon_root");
    p_.weight_decay = float_attribute(node, "weight_decay");
    p_.corrected = flag_attribute(node, "bias_corrected_decay");
    shape_ = elementwise_shape(context, p_.elements / 4 + 1);
  }

  bool may_overwrite(int64_t output, int64_t input) const override { return output == input; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const auto in = [&](size_t i) { return pointer_as<const float>(args.inputs[i]); };
    const auto out = [&](size_t i) { return pointer_as<float>(args.outputs[i]); };
    AdamParameters p = p_;
    p.parameter = in(0), p.first = in(1), p.second = in(2), p.gradient = in(3);
    p.learning_rate = in(4), p.count = in(5), p.gradient_scale = in(6);
    p.apply = pointer_as<const uint8_t>(args.inputs[7]);
    p.next_parameter = out(0), p.next_first = out(1), p.next_second = out(2);
    const auto at_16_bytes = [](DeviceAddress address) { return address.value() % 16 == 0; };
    const bool aligned = std::all_of(args.inputs.begin(), args.inputs.begin() + 4, at_16_bytes) &&
                         std::ranges::all_of(args.outputs, at_16_bytes);
    p.vectors = aligned ? p.elements / 4 : 0;
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  Function function_;
  AdamParameters p_ = {};
  LaunchShape shape_;
};

const KernelRegistrar kRegisterAdam{&kAdamUpdateOp, make_kernel<AdamKernel>};

}  // namespace
}  // namespace tessera::cuda
