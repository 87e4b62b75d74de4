// SPDX-License-Identifier: Apache-2.0
// Adam's update, in place where memory allows.
#include "core/ops/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/backend/cpu/composite_kernel.h"
#include "core/backend/cpu/optimizer_kernels.h"

namespace tessera {
namespace {

class AdamKernel final : public HostKernel {
 public:
  AdamKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : count_(graph.type(node.inputs[0]).elements()),
        beta1_(node.attributes.get<double>("beta1")),
        beta2_(node.attributes.get<double>("beta2")),
        corrected_(flag_attribute(node, "bias_corrected_decay")),
        team_(team) {
    step_.epsilon = float_attribute(node, "epsilon");
    step_.epsilon_root = float_attribute(node, "epsilon_root");
    step_.weight_decay = float_attribute(node, "weight_decay");
  }

  bool may_overwrite(int64_t output, int64_t input) const override { return output == input; }

  void run(const HostArgs& args) override {
    if (*input_as<uint8_t>(args, 7) == 0) return keep(args);
    step_.learning_rate = *input_as<float>(args, 4);
    step_.gradient_scale = *input_as<float>(args, 6);
    correct_bias(static_cast<double>(*input_as<float>(args, 5)));
    const AdamBuffers buffers{input_as<float>(args, 0),  input_as<float>(args, 1),
                              input_as<float>(args, 2),  input_as<float>(args, 3),
                              output_as<float>(args, 0), output_as<float>(args, 1),
                              output_as<float>(args, 2)};
    team_.parallel(count_, kGrain, [&](Range range, int) {
      adam_elements(step_, buffers, range.begin, range.end);
    });
  }

 private:
  static constexpr int64_t kGrain = 4096;

  // In double: 1 - β^t loses most digits of an f32 at first.
  void correct_bias(double count) {
    double decay1 = beta1_, decay2 = beta2_;
    const double left1 = 1.0 - std::pow(beta1_, count + 1.0);
    const double left2 = 1.0 - std::pow(beta2_, count + 1.0);
    if (corrected_) {
      decay1 *= (1.0 - std::pow(beta1_, count)) / left1;
      decay2 *= (1.0 - std::pow(beta2_, count)) / left2;
    } else {
      step_.unbias1 = static_cast<float>(1.0 / left1);
      step_.unbias2 = static_cast<float>(1.0 / left2);
    }
    step_.decay1 = static_cast<float>(decay1);
    step_.decay2 = static_cast<float>(decay2);
    step_.fresh1 = static_cast<float>(1.0 - decay1);
    step_.fresh2 = static_cast<float>(1.0 - decay2);
  }

  void keep(const HostArgs& args) {
    for (size_t i = 0; i < 3; ++i) {
      if (args.inputs[i] == args.outputs[i]) continue;
      team_.parallel(count_, kGrain, [&](Range range, int) {
        std::copy(input_as<float>(args, i) + range.begin, input_as<float>(args, i) + range.end,
                  output_as<float>(args, i) + range.begin);
      });
    }
  }

  int64_t count_;
  double beta1_, beta2_;
  bool corrected_;
  AdamStep step_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterOptimizer{kAdamUpdateOp, make_kernel<AdamKernel>};

}  // namespace
}  // namespace tessera
