// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "core/ops/optimizer.h"
#include "core/ops/repeat.h"
#include "core/ops/rounding.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/noise_parts.h"
#include "plugins/cuda/kernels/tensor_launches.h"

namespace tessera::cuda {
namespace {

// An adam_update node with the numbers of its operands and results among those of a launch.
struct Update {
  std::array<size_t, AdamOperand::kApply + 1> inputs = {};
  std::array<size_t, 3> outputs = {};
  std::optional<size_t> copy;    // The result that is the new parameter in bf16.
  std::vector<NoisePart> parts;  // Parts of the shard; one with all elements if there is no noise.
  float weight_decay = 0.0f;
};

// The dtypes of the moments, equal for all parameters of a launch.
struct Moments {
  explicit Moments(const Graph& graph, const Node& update)
      : first(graph.type(update.inputs[AdamOperand::kFirst]).dtype),
        second(graph.type(update.inputs[AdamOperand::kSecond]).dtype),
        stochastic(rounds_stochastically(update)) {}
  bool rounded() const { return first != DType::kF32 || second != DType::kF32; }
  std::string function() const {
    return rounded() ? fmt::format("adam_update_{}_{}", dtype_name(first), dtype_name(second))
                     : "adam_update";
  }
  DType first, second;
  bool stochastic;
};

size_t place_in(const std::vector<ValueId>& values, ValueId value) {
  return static_cast<size_t>(std::ranges::find(values, value) - values.begin());
}

std::vector<ValueId> values_of(const auto& items) {
  std::vector<ValueId> values;
  for (const auto& each : items) values.push_back(each.value);
  return values;
}

// adam_update alone, or several in a `fused_updates`.
class AdamKernel final : public CudaKernel {
 public:
  AdamKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        moments_(node.op == &kAdamUpdateOp
                     ? Moments(graph, node)
                     : Moments(*node.bodies[0], *node.bodies[0]->nodes().begin())),
        function_(context.function("optimizer", moments_.function())) {
    if (node.op == &kAdamUpdateOp) {
      add_update(graph, node, node.inputs, node.outputs);
    } else {
      const Graph& body = *node.bodies[0];
      const std::vector<ValueId> inputs = values_of(body.inputs());
      const std::vector<ValueId> outputs = values_of(body.outputs());
      for (const Node& each : body.nodes()) {
        if (each.op == &kAdamUpdateOp) {
          add_update(body, each, inputs, outputs);
        } else {
          updates_.back().copy = place_in(outputs, each.outputs[0]);
        }
      }
    }
    set_options(node.op == &kAdamUpdateOp ? node : *node.bodies[0]->nodes().begin());
  }

  // Each element of the state is read before it is written, and by nobody else.
  bool may_overwrite(int64_t output, int64_t input) const override {
    return std::ranges::any_of(updates_, [&](const Update& update) {
      for (size_t i = 0; i < update.outputs.size(); ++i)
        if (update.outputs[i] == static_cast<size_t>(output))
          return update.inputs[i] == static_cast<size_t>(input);
      return false;
    });
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const auto in = [&](size_t i) {
      return pointer_as<const float>(args.inputs[updates_[0].inputs[i]]);
    };
    AdamSettings settings = settings_;
    settings.learning_rate = in(AdamOperand::kRate), settings.count = in(AdamOperand::kCount);
    settings.gradient_scale = in(AdamOperand::kScale);
    settings.apply =
        pointer_as<const uint8_t>(args.inputs[updates_[0].inputs[AdamOperand::kApply]]);
    if (moments_.rounded()) {
      enqueue_as<RoundedAdamParameters>(stream, settings, args);
    } else {
      enqueue_as<AdamParameters>(stream, settings, args);
    }
  }

 private:
  // `inputs` and `outputs` are those of a launch.
  void add_update(const Graph& graph, const Node& node, const std::vector<ValueId>& inputs,
                  const std::vector<ValueId>& outputs) {
    Update& update = updates_.emplace_back();
    for (size_t i = 0; i < update.inputs.size(); ++i)
      update.inputs[i] = place_in(inputs, node.inputs[i]);
    for (size_t i = 0; i < update.outputs.size(); ++i)
      update.outputs[i] = place_in(outputs, node.outputs[i]);
    const Type& type = graph.type(node.inputs[AdamOperand::kParameter]);
    update.parts = {{.elements = type.elements()}};
    if (moments_.stochastic) update.parts = noise_parts(type, node);
    update.weight_decay = static_cast<float>(adam_options(node.attributes).weight_decay);
  }

  void set_options(const Node& node) {
    const AdamOptions options = adam_options(node.attributes);
    settings_.beta1 = options.beta1;
    settings_.beta2 = options.beta2;
    settings_.log2_beta1 = std::log2(settings_.beta1);
    settings_.log2_beta2 = std::log2(settings_.beta2);
    settings_.epsilon = static_cast<float>(options.epsilon);
    settings_.epsilon_root = static_cast<float>(options.epsilon_root);
    settings_.corrected = options.bias_corrected_decay;
  }

  template <typename Parameters>
  void enqueue_as(CUstream stream, const AdamSettings& settings, const LaunchArgs& args) const {
    Parameters p = {};
    p.settings = settings;
    TensorLaunches launches(context_, stream, function_, p);
    for (const Update& update : updates_)
      for (const NoisePart& part : update.parts) {
        const AdamTensor tensor = tensor_of(update, part, args);
        if constexpr (std::is_same_v<Parameters, AdamParameters>) {
          launches.add(tensor);
        } else {
          RoundedAdamTensor rounded = {tensor, moments_.stochastic, part.noise};
          if (moments_.stochastic && !part.noise.whole_blocks) rounded.aligned = false;
          launches.add(rounded);
        }
      }
    launches.finish();
  }

  AdamTensor tensor_of(const Update& update, const NoisePart& part, const LaunchArgs& args) const {
    uint64_t addresses = 0;
    // The part's first element of an operand or a result.
    const auto at = [&](DeviceAddress array, DType dtype) {
      const uint64_t address =
          array.value() + static_cast<uint64_t>(part.begin * dtype_bytes(dtype));
      addresses |= address;
      return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
    };
    const auto in = [&](size_t i, DType dtype) { return at(args.inputs[update.inputs[i]], dtype); };
    const auto out = [&](size_t i, DType dtype) {
      return at(args.outputs[update.outputs[i]], dtype);
    };
    constexpr DType kF32 = DType::kF32;
    AdamTensor tensor = {
        .parameter = reinterpret_cast<const float*>(in(AdamOperand::kParameter, kF32)),
        .first = in(AdamOperand::kFirst, moments_.first),
        .second = in(AdamOperand::kSecond, moments_.second),
        .gradient = reinterpret_cast<const float*>(in(AdamOperand::kGradient, kF32)),
        .next_parameter = reinterpret_cast<float*>(out(0, kF32)),
        .next_first = out(1, moments_.first),
        .next_second = out(2, moments_.second),
        .copy = update.copy ? at(args.outputs[*update.copy], DType::kBF16) : nullptr,
        .elements = part.elements,
        .weight_decay = update.weight_decay};
    tensor.aligned = addresses % 16 == 0;
    return tensor;
  }

  Context& context_;
  Moments moments_;
  Function function_;
  std::vector<Update> updates_;
  AdamSettings settings_ = {};
};

const KernelRegistrar kRegisterAdam{{&kAdamUpdateOp, &kFusedUpdatesOp}, make_kernel<AdamKernel>};

}  // namespace
}  // namespace tessera::cuda
