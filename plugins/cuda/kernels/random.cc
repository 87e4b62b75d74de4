// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/random.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/random.h"
#include "core/devices/iteration_space.h"
#include "core/ops/random.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

using Numbers = std::vector<int64_t>;

// How the shard lies in the global array: the strides of its elements there, and the global number
// of the first one. The examples of a microbatch are `part` apart (0: the whole batch).
struct ShardSpace {
  IterationSpace space;  // Its one operand is the global array.
  int64_t first = 0, example_elements = 0;
};

ShardSpace shard_space(const Type& anchor, const Attributes& attributes) {
  const Numbers shape = sizes_of(anchor.axes);
  const size_t rank = shape.size();
  const Numbers origin = attributes.get_or(key::kOrigin, Numbers(rank, 0));
  const Numbers extent = attributes.get_or(key::kExtent, shape);
  const int64_t part = attributes.get(key::kPart);
  ShardSpace shard;
  Strides strides(rank);
  int64_t stride = 1;
  for (size_t d = rank; d-- > 0; stride *= extent[d]) {
    strides[d] = stride;
    if (d == 0) shard.example_elements = stride;
    if (d == 0 && part != 0) strides[d] *= part;
    shard.first += origin[d] * strides[d];
  }
  shard.space = collapse(shape, {std::move(strides)});
  return shard;
}

// Whether the elements of each run of `width` elements of the shard, from a multiple of it on, are
// neighbours in the global array.
bool has_whole_runs(const IterationSpace& space, int64_t width) {
  if (space.sizes.empty()) return true;
  if (space.operands[0].back() != 1) return false;
  return space.sizes.size() == 1 || space.sizes.back() % width == 0;
}

// The operands of a random node that select its stream and elements (core/ops/random.cc).
class RandomOperands {
 public:
  // `width`: elements of a thread in the functions that need whole runs.
  RandomOperands(const Node& node, size_t first_operand, const Type& type, int64_t width)
      : first_operand_(first_operand),
        loop_(node.attributes.get(key::kLoop)),
        part_(node.attributes.get(key::kPart) != 0) {
    const ShardSpace shard = shard_space(type, node.attributes);
    scattered_ = !has_whole_runs(shard.space, width);
    p_.space = strided<1>(shard.space, *node.op);
    p_.elements = type.elements();
    p_.first = shard.first;
    p_.example_elements = shard.example_elements;
    p_.path_hash = path_hash(node.attributes.get(key::kSeed), node.attributes.get(key::kStream));
    p_.layer = node.attributes.get(key::kLayer);
    items_ = scattered_ ? p_.elements : (p_.elements + width - 1) / width;
  }

  Function function(Context& context, std::string_view op, std::string_view suffix) const {
    return context.function("random",
                            fmt::format("{}{}_{}", op, scattered_ ? "_scattered" : "", suffix));
  }
  int64_t items() const { return items_; }

  RandomParameters at(const LaunchArgs& args) const {
    const auto scalar = [&](size_t i) { return pointer_as<const int32_t>(args.inputs[i]); };
    RandomParameters p = p_;
    size_t next = first_operand_;
    p.step = scalar(next++);
    if (loop_) p.loop_index = scalar(next++);
    if (part_) p.first_example = scalar(next++);
    return p;
  }

 private:
  size_t first_operand_;
  bool loop_, part_, scattered_ = false;
  RandomParameters p_ = {};
  int64_t items_ = 0;
};

class UniformKernel final : public CudaKernel {
 public:
  UniformKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        operands_(node, 0, graph.type(node.outputs[0]), 4),
        function_(operands_.function(context, "random_uniform", "f32")),
        shape_(elementwise_shape(context, operands_.items())) {}

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const UniformParameters p{operands_.at(args), pointer_as<float>(args.outputs[0])};
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  RandomOperands operands_;
  Function function_;
  LaunchShape shape_;
};

class DropoutKernel final : public CudaKernel {
 public:
  DropoutKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        operands_(node, 1, graph.type(node.inputs[0]),
                  16 / dtype_bytes(graph.type(node.inputs[0]).dtype)),
        function_(
            operands_.function(context, "dropout", float_suffix(graph, node, node.inputs[0]))),
        shape_(elementwise_shape(context, operands_.items())),
        keep_(static_cast<float>(node.attributes.get(key::kKeep))) {}

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const DropoutParameters p{operands_.at(args), pointer_as<const void>(args.inputs[0]),
                              pointer_as<void>(args.outputs[0]), keep_, 1.0f / keep_};
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  RandomOperands operands_;
  Function function_;
  LaunchShape shape_;
  float keep_;
};

const KernelRegistrar kRegisterUniform{kRandomUniformOp, make_kernel<UniformKernel>};
const KernelRegistrar kRegisterDropout{kDropoutOp, make_kernel<DropoutKernel>};

}  // namespace
}  // namespace tessera::cuda
