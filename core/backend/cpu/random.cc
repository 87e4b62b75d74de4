// SPDX-License-Identifier: Apache-2.0
// Uniform numbers and dropout: elements are shared out among threads; what each is depends on its
// index alone.
#include "core/base/random.h"

#include <string>

#include "core/backend/cpu/composite_kernel.h"
#include "core/backend/cpu/random_kernels.h"
#include "core/backend/cpu/shard_elements.h"
#include "core/ops/random.h"

namespace tessera {
namespace {

constexpr int64_t kGrain = 4096;

// Where a random node draws: which operands say so is in core/ops/random.cc.
class StreamOperands {
 public:
  StreamOperands(const Node& node, size_t first_operand, const Type& type)
      : seed_(static_cast<uint64_t>(node.attributes.get<int64_t>("seed"))),
        path_(node.attributes.get<std::string>("stream")),
        layer_(node.attributes.get<int64_t>("layer")),
        loop_(flag_attribute(node, "loop")),
        part_(node.attributes.get<int64_t>("part")),
        first_operand_(first_operand),
        elements_(type, node.attributes) {}

  RandomStream stream(const HostArgs& args) const {
    const int64_t layer = loop_ ? *input_as<int32_t>(args, first_operand_ + 1) : layer_;
    return {random_key(seed_, path_, layer),
            static_cast<uint64_t>(int64_t{*input_as<int32_t>(args, first_operand_)})};
  }
  // Calls run(offset, begin, end) for the runs of `range` that lie together in the whole array:
  // element i of one is number offset + i there.
  template <typename Run>
  void for_runs(const HostArgs& args, Range range, const Run& run) const {
    Examples examples;
    if (part_ != 0) examples = {*input_as<int32_t>(args, first_operand_ + (loop_ ? 2 : 1)), part_};
    elements_.for_runs(range.begin, range.end, examples, run);
  }

 private:
  uint64_t seed_;
  std::string path_;
  int64_t layer_;
  bool loop_;
  int64_t part_;
  size_t first_operand_;
  ShardElements elements_;
};

class UniformKernel final : public HostKernel {
 public:
  UniformKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : operands_(node, 0, graph.type(node.outputs[0])),
        count_(graph.type(node.outputs[0]).elements()),
        team_(team) {}

  void run(const HostArgs& args) override {
    const RandomStream stream = operands_.stream(args);
    float* out = output_as<float>(args, 0);
    team_.parallel(count_, kGrain, [&](Range range, int) {
      operands_.for_runs(args, range, [&](int64_t offset, int64_t begin, int64_t end) {
        uniform_elements(stream, offset + begin, offset + end, out + begin);
      });
    });
  }

 private:
  StreamOperands operands_;
  int64_t count_;
  ThreadTeam& team_;
};

class DropoutKernel final : public HostKernel {
 public:
  DropoutKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : operands_(node, 1, graph.type(node.inputs[0])),
        dtype_(vector_dtype(graph, node, 0)),
        count_(graph.type(node.inputs[0]).elements()),
        keep_(float_attribute(node, "keep")),
        team_(team) {}

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    const RandomStream stream = operands_.stream(args);
    team_.parallel(count_, kGrain, [&](Range range, int) {
      operands_.for_runs(args, range, [&](int64_t offset, int64_t begin, int64_t end) {
        dropout_elements(stream, offset, keep_, dtype_, args.inputs[0], args.outputs[0], begin,
                         end);
      });
    });
  }

 private:
  StreamOperands operands_;
  DType dtype_;
  int64_t count_;
  float keep_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterUniform{kRandomUniformOp, make_kernel<UniformKernel>};
const KernelRegistrar kRegisterDropout{kDropoutOp, make_kernel<DropoutKernel>};

}  // namespace
}  // namespace tessera
