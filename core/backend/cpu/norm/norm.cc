// SPDX-License-Identifier: Apache-2.0
// RMSNorm, LayerNorm and their gradients: rows are shared out among threads. The weights' gradients
// are summed over blocks of rows whose number depends on the sizes alone, and the blocks are then
// added in order: the same bits for any number of threads.
#include "core/ops/norm.h"

#include <algorithm>

#include "core/backend/cpu/composite_kernel.h"
#include "core/backend/cpu/norm/norm_kernels.h"

namespace tessera {
namespace {

constexpr int64_t kBlockElements = 8192;  // Of a block of rows, at least.
constexpr int64_t kMostBlocks = 64;

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
  // Blocks of rows for sums over rows.
  int64_t blocks() const {
    const int64_t most = std::min(kMostBlocks, count);
    return std::clamp<int64_t>(count * width / kBlockElements, 1, std::max<int64_t>(most, 1));
  }

  DType dtype;
  int64_t width, count;
  bool centred, has_scale, has_bias;
  DType weights;
};

class Norm final : public HostKernel {
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

  void run(const HostArgs& args) override {
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

class NormGrad final : public HostKernel {
 public:
  NormGrad(const Graph& graph, const Node& node, ThreadTeam& team)
      : shape_(graph, node), num_inputs_(node.inputs.size()), team_(team) {}

  // The scale, then for every block of rows its sums.
  int64_t scratch_bytes() const override {
    return (1 + 2 * shape_.blocks()) * padded_floats(shape_.width) *
           static_cast<int64_t>(sizeof(float));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return output == 0 && (input == 0 || input == static_cast<int64_t>(num_inputs_) - 1);
  }

  void run(const HostArgs& args) override {
    const int64_t width = padded_floats(shape_.width);
    const int64_t blocks = shape_.blocks();
    float* scale = reinterpret_cast<float*>(args.scratch);
    float* dscale = scale + width;
    float* dbias = dscale + width * blocks;
    const size_t statistics = shape_.has_scale ? 2 : 1;
    if (shape_.has_scale) widen(args.inputs[1], shape_.weights, shape_.width, scale);
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
    team_.parallel(blocks, 1, [&](Range range, int) {
      for (int64_t block = range.begin; block < range.end; ++block) {
        float* const scale_sums = shape_.has_scale ? dscale + block * width : nullptr;
        float* const bias_sums = shape_.has_bias ? dbias + block * width : nullptr;
        if (scale_sums != nullptr) std::fill_n(scale_sums, width, 0.0f);
        if (bias_sums != nullptr) std::fill_n(bias_sums, width, 0.0f);
        const Range part = part_of(shape_.count, static_cast<int>(block), static_cast<int>(blocks));
        norm_grad_rows(rows, part.begin, part.end, scale_sums, bias_sums);
      }
    });
    if (shape_.has_scale) add(dscale, blocks, args.outputs[1]);
    if (shape_.has_bias) add(dbias, blocks, args.outputs[2]);
  }

 private:
  void add(const float* parts, int64_t blocks, std::byte* out) {
    add_rows(parts, blocks, padded_floats(shape_.width), 0, shape_.width, shape_.weights, out);
  }

  NormShape shape_;
  size_t num_inputs_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterNorm{{&kRmsNormOp, &kLayerNormOp}, make_kernel<Norm>};
const KernelRegistrar kRegisterNormGrad{{&kRmsNormGradOp, &kLayerNormGradOp},
                                        make_kernel<NormGrad>};

}  // namespace
}  // namespace tessera
