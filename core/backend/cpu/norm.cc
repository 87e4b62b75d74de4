// SPDX-License-Identifier: Apache-2.0
// RMSNorm, LayerNorm and their gradients: rows are shared out among threads; each thread adds up
// its own part of the weights' gradients, and the parts are then added in thread order.
#include <algorithm>

#include "core/backend/cpu/composite_kernel.h"
#include "core/backend/cpu/norm_loops.h"

namespace tessera {
namespace {

// What the nodes of the family have in common.
struct NormShape {
  NormShape(const Graph& graph, const Node& node)
      : dtype(vector_dtype(graph, node, 0)),
        width(graph.type(node.inputs[0]).axes.back().size),
        count(graph.type(node.inputs[0]).elements() / width),
        centred(flag_attribute(node, "centred")),
        has_scale(flag_attribute(node, "scale")),
        has_bias(flag_attribute(node, "bias")),
        weights(has_scale ? vector_dtype(graph, node, 1) : DType::kF32) {}
  int64_t grain() const { return std::max<int64_t>(1, 4096 / width); }

  DType dtype;
  int64_t width, count;
  bool centred, has_scale, has_bias;
  DType weights;
};

class Norm final : public Kernel {
 public:
  Norm(const Graph& graph, const Node& node, ThreadTeam& team)
      : shape_(graph, node),
        epsilon_(static_cast<float>(node.attributes.get<double>("epsilon"))),
        team_(team) {}

  int64_t scratch_bytes() const override {
    return 2 * padded_floats(shape_.width) * static_cast<int64_t>(sizeof(float));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return output == 0 && input == 0;
  }

  void run(const LaunchArgs& args) override {
    float* scale = reinterpret_cast<float*>(args.scratch);
    float* bias = scale + padded_floats(shape_.width);
    if (shape_.has_scale) widen(args.inputs[1], shape_.weights, shape_.width, scale);
    if (shape_.has_bias) widen(args.inputs[2], shape_.weights, shape_.width, bias);
    const NormRows rows{.dtype = shape_.dtype,
                        .width = shape_.width,
                        .epsilon = epsilon_,
                        .centred = shape_.centred,
                        .x = args.inputs[0],
                        .scale = shape_.has_scale ? scale : nullptr,
                        .bias = shape_.has_bias ? bias : nullptr,
                        .y = args.outputs[0],
                        .rstd = output_as<float>(args, 1),
                        .mean = shape_.centred ? output_as<float>(args, 2) : nullptr};
    team_.parallel(shape_.count, shape_.grain(),
                   [&](Range range, int) { norm_rows(rows, range.begin, range.end); });
  }

 private:
  NormShape shape_;
  float epsilon_;
  ThreadTeam& team_;
};

class NormGrad final : public Kernel {
 public:
  NormGrad(const Graph& graph, const Node& node, ThreadTeam& team)
      : shape_(graph, node), num_inputs_(node.inputs.size()), team_(team) {}

  // The scale, then for every thread its sums.
  int64_t scratch_bytes() const override {
    return (1 + 2 * team_.size()) * padded_floats(shape_.width) *
           static_cast<int64_t>(sizeof(float));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return output == 0 && (input == 0 || input == static_cast<int64_t>(num_inputs_) - 1);
  }

  void run(const LaunchArgs& args) override {
    const int64_t width = padded_floats(shape_.width);
    float* scale = reinterpret_cast<float*>(args.scratch);
    float* dscale = scale + width;
    float* dbias = dscale + width * team_.size();
    const size_t statistics = shape_.has_scale ? 2 : 1;
    if (shape_.has_scale) {
      widen(args.inputs[1], shape_.weights, shape_.width, scale);
      std::fill_n(dscale, 2 * width * team_.size(), 0.0f);
    }
    const NormGradRows rows{
        .dtype = shape_.dtype,
        .width = shape_.width,
        .centred = shape_.centred,
        .x = args.inputs[0],
        .cotangent = args.inputs[num_inputs_ - 1],
        .scale = shape_.has_scale ? scale : nullptr,
        .rstd = input_as<float>(args, statistics),
        .mean = shape_.centred ? input_as<float>(args, statistics + 1) : nullptr,
        .dx = args.outputs[0]};
    team_.parallel(shape_.count, shape_.grain(), [&](Range range, int thread) {
      norm_grad_rows(rows, range.begin, range.end,
                     shape_.has_scale ? dscale + thread * width : nullptr,
                     shape_.has_bias ? dbias + thread * width : nullptr);
    });
    if (shape_.has_scale) add(dscale, args.outputs[1]);
    if (shape_.has_bias) add(dbias, args.outputs[2]);
  }

 private:
  void add(const float* parts, std::byte* out) {
    add_rows(parts, team_.size(), padded_floats(shape_.width), 0, shape_.width, shape_.weights,
             out);
  }

  NormShape shape_;
  size_t num_inputs_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterNorm{{"rms_norm", "layer_norm"}, make_kernel<Norm>};
const KernelRegistrar kRegisterNormGrad{{"rms_norm_grad", "layer_norm_grad"},
                                        make_kernel<NormGrad>};

}  // namespace
}  // namespace tessera
