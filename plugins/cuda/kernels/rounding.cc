// SPDX-License-Identifier: Apache-2.0
// The CUDA kernel of stochastic_round (core/ops/rounding.h).
#include "core/ops/rounding.h"

#include <vector>

#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/movement.h"
#include "plugins/cuda/kernels/noise_parts.h"

namespace tessera::cuda {
namespace {

class StochasticRoundKernel final : public CudaKernel {
 public:
  StochasticRoundKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        function_(context.function("rounding", "stochastic_round")),
        parts_(noise_parts(graph.type(node.inputs[0]), node)),
        high_(node.attributes.get(key::kHalf) == NoiseHalf::kHigh) {}

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    for (const NoisePart& part : parts_) {
      RoundParameters p = {.x = pointer_as<const float>(args.inputs[0]) + part.begin,
                           .count = pointer_as<const float>(args.inputs[1]),
                           .y = pointer_as<uint16_t>(args.outputs[0]) + part.begin,
                           .elements = part.elements,
                           .noise_shift = high_ ? 16 : 0,
                           .vectors = false,
                           .noise = part.noise};
      const uint64_t addresses = args.inputs[0].value() | args.outputs[0].value();
      p.vectors = part.noise.whole_blocks && part.begin % 8 == 0 && addresses % 16 == 0;
      const int64_t items = p.vectors ? (p.elements + 7) / 8 : p.elements;
      launch(context_, stream, function_, elementwise_shape(context_, items), p);
    }
  }

 private:
  Context& context_;
  Function function_;
  std::vector<NoisePart> parts_;
  bool high_;
};

const KernelRegistrar kRegisterRound{kStochasticRoundOp, make_kernel<StochasticRoundKernel>};

}  // namespace
}  // namespace tessera::cuda
