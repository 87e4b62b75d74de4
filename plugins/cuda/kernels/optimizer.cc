// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "core/ops/optimizer.h"
#include "core/ops/repeat.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/tensor_launches.h"

namespace tessera::cuda {
namespace {

// An adam_update node with the numbers of its operands and results among those of a launch.
struct Update {
  std::array<size_t, AdamOperand::kApply + 1> inputs = {};
  std::array<size_t, 3> outputs = {};
  std::optional<size_t> copy;  // The result that is the new parameter in bf16.
  int64_t elements = 0;
  float weight_decay = 0.0f;
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
      : context_(context), function_(context.function("optimizer", "adam_update")) {
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
    AdamParameters p = p_;
    p.learning_rate = in(AdamOperand::kRate), p.count = in(AdamOperand::kCount);
    p.gradient_scale = in(AdamOperand::kScale);
    p.apply = pointer_as<const uint8_t>(args.inputs[updates_[0].inputs[AdamOperand::kApply]]);
    TensorLaunches launches(context_, stream, function_, p);
    for (const Update& update : updates_) launches.add(tensor_of(update, args));
    launches.finish();
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
    update.elements = graph.type(node.inputs[AdamOperand::kParameter]).elements();
    update.weight_decay = float_attribute(node, "weight_decay");
  }

  void set_options(const Node& node) {
    const auto number = [&](std::string_view name) { return node.attributes.get<double>(name); };
    p_.beta1 = number("beta1");
    p_.beta2 = number("beta2");
    p_.log2_beta1 = std::log2(p_.beta1);
    p_.log2_beta2 = std::log2(p_.beta2);
    p_.epsilon = float_attribute(node, "epsilon");
    p_.epsilon_root = float_attribute(node, "epsilon_root");
    p_.corrected = flag_attribute(node, "bias_corrected_decay");
  }

  static AdamTensor tensor_of(const Update& update, const LaunchArgs& args) {
    const auto in = [&](size_t i) { return args.inputs[update.inputs[i]]; };
    const auto out = [&](size_t i) { return args.outputs[update.outputs[i]]; };
    uint64_t addresses = 0;
    for (size_t i = 0; i <= AdamOperand::kGradient; ++i) addresses |= in(i).value();
    for (size_t i = 0; i < update.outputs.size(); ++i) addresses |= out(i).value();
    if (update.copy) addresses |= args.outputs[*update.copy].value();
    return {.parameter = pointer_as<const float>(in(AdamOperand::kParameter)),
            .first = pointer_as<const float>(in(AdamOperand::kFirst)),
            .second = pointer_as<const float>(in(AdamOperand::kSecond)),
            .gradient = pointer_as<const float>(in(AdamOperand::kGradient)),
            .next_parameter = pointer_as<float>(out(0)),
            .next_first = pointer_as<float>(out(1)),
            .next_second = pointer_as<float>(out(2)),
            .copy = update.copy ? pointer_as<void>(args.outputs[*update.copy]) : nullptr,
            .elements = update.elements,
            .weight_decay = update.weight_decay,
            .aligned = addresses % 16 == 0};
  }

  Context& context_;
  Function function_;
  std::vector<Update> updates_;
  AdamParameters p_ = {};
};

const KernelRegistrar kRegisterAdam{{&kAdamUpdateOp, &kFusedUpdatesOp}, make_kernel<AdamKernel>};

}  // namespace
}  // namespace tessera::cuda
