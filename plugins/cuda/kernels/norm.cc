// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/norm.h"

#include <algorithm>

#include "core/ops/norm.h"
#include "plugins/cuda/kernels/row_kernel.h"

namespace tessera::cuda {
namespace {

// Whether the weights are bf16.
bool narrow_weights(const Graph& graph, const Node& node) {
  return flag_attribute(node, "scale") && float_suffix(graph, node, node.inputs[1]) == "bf16";
}

class NormKernel final : public RowKernel {
 public:
  NormKernel(const Graph& graph, const Node& node, Context& context)
      : RowKernel(graph, node, context, "norm", kHeldPacks),
        has_scale_(flag_attribute(node, "scale")),
        has_bias_(flag_attribute(node, "bias")),
        centered_(flag_attribute(node, "centered")) {
    p_.epsilon = float_attribute(node, "epsilon");
    p_.inverse_width = 1.0f / static_cast<float>(aligned().rows.width);
    p_.narrow_weights = narrow_weights(graph, node);
  }

  bool may_overwrite(int64_t output, int64_t input) const override {
    return output == 0 && input == 0;
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const RowForm& form = form_for(args);
    NormParameters p = p_;
    p.rows = form.rows;
    p.x = pointer_as<const void>(args.inputs[0]);
    if (has_scale_) p.scale = pointer_as<const void>(args.inputs[1]);
    if (has_bias_) p.bias = pointer_as<const void>(args.inputs[2]);
    p.y = pointer_as<void>(args.outputs[0]);
    p.rstd = pointer_as<float>(args.outputs[1]);
    if (centered_) p.mean = pointer_as<float>(args.outputs[2]);
    launch(context(), stream, form.function, form.shape, p);
  }

 private:
  bool has_scale_, has_bias_, centered_;
  NormParameters p_ = {};
};

class NormGradKernel final : public RowKernel {
 public:
  NormGradKernel(const Graph& graph, const Node& node, Context& context)
      : RowKernel(graph, node, context, "norm", kGradPacks),
        column_sums_(context.function("norm", "norm_column_sums")),
        num_inputs_(node.inputs.size()),
        has_scale_(flag_attribute(node, "scale")),
        has_bias_(flag_attribute(node, "bias")),
        centered_(flag_attribute(node, "centered")) {
    p_.inverse_width = 1.0f / static_cast<float>(aligned().rows.width);
    p_.narrow_weights = narrow_weights(graph, node);
  }

  // The sums of every block.
  int64_t scratch_bytes() const override {
    const int64_t rows = std::max(blocks(aligned()), blocks(unaligned()));
    const int64_t weights = int64_t{has_scale_} + int64_t{has_bias_};
    return weights * rows * aligned().rows.width * static_cast<int64_t>(sizeof(float));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return output == 0 && (input == 0 || input == static_cast<int64_t>(num_inputs_) - 1);
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const RowForm& form = form_for(args);
    const size_t statistics = has_scale_ ? 2 : 1;
    NormGradParameters p = p_;
    p.rows = form.rows;
    p.x = pointer_as<const void>(args.inputs[0]);
    p.cotangent = pointer_as<const void>(args.inputs[num_inputs_ - 1]);
    p.rstd = pointer_as<const float>(args.inputs[statistics]);
    if (has_scale_) p.scale = pointer_as<const void>(args.inputs[1]);
    if (centered_) p.mean = pointer_as<const float>(args.inputs[statistics + 1]);
    p.dx = pointer_as<void>(args.outputs[0]);
    if (has_scale_) p.scale_sums = pointer_as<float>(args.scratch);
    if (has_bias_) p.bias_sums = p.scale_sums + blocks(form) * form.rows.width;
    LaunchShape shape = form.shape;
    shape.blocks_x = blocks(form);
    launch(context(), stream, form.function, shape, p);
    if (has_scale_) add_blocks(stream, args, p, shape.blocks_x);
  }

 private:
  // The sums have one term a block, so the number of blocks depends on the sizes and not on the
  // GPU: all give the same bits. The most are those that fit on the 132 multiprocessors of an H100
  // or H200.
  int64_t blocks(const RowForm& form) const {
    const int64_t resident = centered_ ? kLayerNormGradBlocks : kRmsNormGradBlocks;
    return std::min(form.shape.blocks_x, 132 * resident * kRowThreads / form.shape.threads);
  }

  void add_blocks(CUstream stream, const LaunchArgs& args, const NormGradParameters& p,
                  int64_t blocks) {
    ColumnSumParameters sums = {};
    sums.sums[0] = p.scale_sums, sums.to[0] = pointer_as<void>(args.outputs[1]);
    if (has_bias_) sums.sums[1] = p.bias_sums, sums.to[1] = pointer_as<void>(args.outputs[2]);
    sums.blocks = blocks, sums.width = p.rows.width, sums.narrow = p.narrow_weights;
    launch(context(), stream, column_sums_,
           {.blocks_x = (p.rows.width + kSumColumns - 1) / kSumColumns,
            .blocks_y = has_bias_ ? 2 : 1,
            .threads = kSumColumns * kSumParts},
           sums);
  }

  Function column_sums_;
  size_t num_inputs_;
  bool has_scale_, has_bias_, centered_;
  NormGradParameters p_ = {};
};

const KernelRegistrar kRegisterNorm{{&kRmsNormOp, &kLayerNormOp}, make_kernel<NormKernel>};
const KernelRegistrar kRegisterNormGrad{{&kRmsNormGradOp, &kLayerNormGradOp},
                                        make_kernel<NormGradKernel>};

}  // namespace
}  // namespace tessera::cuda
