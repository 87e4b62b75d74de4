// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/norm.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"
#include "plugins/cuda/kernels/row_kernel.h"

namespace tessera::cuda {
namespace {

// A norm or the gradient of one, alone or in a `fused_norm` (core/compile/fuse/fuse.h).
struct NormNode {
  const Graph& graph;
  const Node& node;
  std::vector<size_t> operands;  // Numbers of the node's operands among those of the launch.
  std::optional<size_t> addend;  // The number of what is added to x or to dx.
  NormAttributes attributes = NormAttributes(node.attributes);

  // Whether the weights are bf16.
  bool narrow_weights() const {
    return attributes.has_scale && float_suffix(graph, node, node.inputs[1]) == "bf16";
  }
};

NormNode read_norm(const Graph& graph, const Node& node) {
  if (node.op != &kFusedNormOp) {
    std::vector<size_t> operands(node.inputs.size());
    std::iota(operands.begin(), operands.end(), size_t{0});
    return {graph, node, operands, std::nullopt};
  }
  const Graph& body = *node.bodies[0];
  const auto number_of = [&](ValueId value) {
    const auto found = std::ranges::find(body.inputs(), value, &GraphInput::value);
    CHECK(found != body.inputs().end());
    return static_cast<size_t>(found - body.inputs().begin());
  };
  const bool add_is_first = body.nodes().front().op == &kAddOp;
  const Node& add = add_is_first ? body.nodes().front() : body.nodes().back();
  const Node& norm = add_is_first ? body.nodes().back() : body.nodes().front();
  // The add's first operand takes the place of the sum in the norm.
  std::vector<size_t> operands;
  for (const ValueId value : norm.inputs)
    operands.push_back(number_of(value == add.outputs[0] ? add.inputs[0] : value));
  return {body, norm, operands, number_of(add.inputs[add.inputs[1] == norm.outputs[0] ? 0 : 1])};
}

class NormKernel final : public RowKernel {
 public:
  NormKernel(const Graph& graph, const Node& node, Context& context)
      : NormKernel(read_norm(graph, node), context) {}
  NormKernel(const NormNode& norm, Context& context)
      : RowKernel(norm.graph, norm.node, context, "norm", kHeldPacks),
        operands_(norm.operands),
        addend_(norm.addend),
        has_scale_(norm.attributes.has_scale),
        has_bias_(norm.attributes.has_bias),
        centered_(norm.attributes.centered),
        statistics_(centered_ ? 2 : 1) {
    p_.epsilon = static_cast<float>(norm.attributes.epsilon);
    p_.inverse_width = 1.0f / static_cast<float>(aligned().rows.width);
    p_.narrow_weights = norm.narrow_weights();
  }

  bool may_overwrite(int64_t output, int64_t input) const override {
    const auto number = static_cast<size_t>(input);
    const bool is_row = output == 0 || output > statistics_;
    return is_row && (number == operands_[0] || number == addend_);
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const RowForm& form = form_for(args);
    NormParameters p = p_;
    p.rows = form.rows;
    p.x = pointer_as<const void>(args.inputs[operands_[0]]);
    if (has_scale_) p.scale = pointer_as<const void>(args.inputs[operands_[1]]);
    if (has_bias_) p.bias = pointer_as<const void>(args.inputs[operands_[2]]);
    p.y = pointer_as<void>(args.outputs[0]);
    if (addend_) {
      p.addend = pointer_as<const void>(args.inputs[*addend_]);
      // A sum that nobody else reads lies where y is written after it.
      const size_t sum = static_cast<size_t>(statistics_) + 1;
      p.sum = sum < args.outputs.size() ? pointer_as<void>(args.outputs[sum]) : p.y;
    }
    p.rstd = pointer_as<float>(args.outputs[1]);
    if (centered_) p.mean = pointer_as<float>(args.outputs[2]);
    launch(context(), stream, form.function, form.shape, p);
  }

 private:
  std::vector<size_t> operands_;
  std::optional<size_t> addend_;
  bool has_scale_, has_bias_, centered_;
  int64_t statistics_;
  NormParameters p_ = {};
};

class NormGradKernel final : public RowKernel {
 public:
  NormGradKernel(const Graph& graph, const Node& node, Context& context)
      : NormGradKernel(read_norm(graph, node), context) {}
  NormGradKernel(const NormNode& gradient, Context& context)
      : RowKernel(gradient.graph, gradient.node, context, "norm", kGradPacks),
        column_sums_(context.function("norm", "norm_column_sums")),
        operands_(gradient.operands),
        addend_(gradient.addend),
        has_scale_(gradient.attributes.has_scale),
        has_bias_(gradient.attributes.has_bias),
        centered_(gradient.attributes.centered) {
    p_.inverse_width = 1.0f / static_cast<float>(aligned().rows.width);
    p_.narrow_weights = gradient.narrow_weights();
  }

  // The sums of every block.
  int64_t scratch_bytes() const override {
    const int64_t rows = std::max(blocks(aligned()), blocks(unaligned()));
    const int64_t weights = int64_t{has_scale_} + int64_t{has_bias_};
    return weights * rows * aligned().rows.width * static_cast<int64_t>(sizeof(float));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    const auto number = static_cast<size_t>(input);
    return output == 0 &&
           (number == operands_.front() || number == operands_.back() || number == addend_);
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const RowForm& form = form_for(args);
    const size_t statistics = has_scale_ ? 2 : 1;
    NormGradParameters p = p_;
    p.rows = form.rows;
    p.x = pointer_as<const void>(args.inputs[operands_.front()]);
    p.cotangent = pointer_as<const void>(args.inputs[operands_.back()]);
    p.rstd = pointer_as<const float>(args.inputs[operands_[statistics]]);
    if (has_scale_) p.scale = pointer_as<const void>(args.inputs[operands_[1]]);
    if (centered_) p.mean = pointer_as<const float>(args.inputs[operands_[statistics + 1]]);
    if (addend_) p.addend = pointer_as<const void>(args.inputs[*addend_]);
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
  // or H200. With few rows the sums have more bytes than dx, but fewer blocks would have too few
  // loads in flight to reach the bandwidth.
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
  std::vector<size_t> operands_;
  std::optional<size_t> addend_;
  bool has_scale_, has_bias_, centered_;
  NormGradParameters p_ = {};
};

std::unique_ptr<Kernel> make_fused(const Graph& graph, const Node& node, Context& context) {
  if (node.bodies[0]->nodes().front().op == &kAddOp)
    return std::make_unique<NormKernel>(graph, node, context);
  return std::make_unique<NormGradKernel>(graph, node, context);
}

const KernelRegistrar kRegisterNorm{{&kRmsNormOp, &kLayerNormOp}, make_kernel<NormKernel>};
const KernelRegistrar kRegisterNormGrad{{&kRmsNormGradOp, &kLayerNormGradOp},
                                        make_kernel<NormGradKernel>};
const KernelRegistrar kRegisterFusedNorm{kFusedNormOp, make_fused};

}  // namespace
}  // namespace tessera::cuda
