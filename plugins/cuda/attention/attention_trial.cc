// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/attention_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/dtype.h"
#include "core/compile/memory/step_program.h"
#include "core/ops/attention.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/device/timing.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {
namespace {

constexpr double kLargestMean = 1.0 / 64, kLargestOfAll = 1.0 / 8;
constexpr std::string_view kNoMemory =
    "results cannot be compared with theirs: the GPU has no memory for it";
constexpr int kDocuments = 3;  // In a row with segments.

// Converts f32 or bf16 to double.
std::vector<double> numbers_of(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> numbers(bytes.size() / static_cast<size_t>(dtype_bytes(dtype)));
  const std::byte* from = bytes.data();
  for (double& number : numbers) {
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, from, sizeof(value));
      number = value;
    } else {
      BFloat16 value;
      std::memcpy(&value, from, sizeof(value));
      number = static_cast<float>(value);
    }
    from += dtype_bytes(dtype);
  }
  return numbers;
}

class AttentionTrial {
 public:
  AttentionTrial(const Graph& graph, const Node& node, Context& context)
      : graph_(graph),
        node_(node),
        context_(context),
        memory_(context),
        stream_(make_cuda_stream(context, StreamUse::kCompute)) {}

  std::string difference(const OwnAttention& own, CudaKernel& other) {
    context_.make_current();
    if (!make_inputs(own.forward)) return std::string(kNoMemory);
    const Values expected = results(*own.kernel(graph_, node_, context_)), got = results(other);
    if (!memory_.complete()) return std::string(kNoMemory);
    for (size_t i = 0; i < got.size(); ++i)
      if (std::string text = difference_of(expected[i], got[i]); !text.empty())
        return fmt::format("result {} of {} differs from theirs{}", i,
                           graph_.type(node_.outputs[i]).text_sized(), text);
    return "";
  }

 private:
  using Values = std::vector<std::vector<double>>;  // Elements of each result.

  const Type& type(size_t input) const { return graph_.type(node_.inputs[input]); }
  bool is_gradient() const { return node_.op == &kAttentionGradOp; }
  bool has_segments() const { return node_.attributes.get<int64_t>("segments") != 0; }

  DeviceAddress allocate(int64_t bytes) { return DeviceAddress(memory_.allocate(bytes)); }

  // All random operands are parts of one array, so that no two of them are equal. False without
  // memory.
  bool make_inputs(OwnAttention::Make make_forward) {
    const size_t forward = has_segments() ? 5 : 3;
    int64_t bytes = 0;
    std::vector<int64_t> begins;
    for (size_t i = 0; i < node_.inputs.size(); ++i)
      begins.push_back(std::exchange(bytes, bytes + aligned(type(i).bytes())));
    const DeviceAddress all = allocate(bytes);
    if (!memory_.complete()) return false;
    const int64_t element = dtype_bytes(type(0).dtype);
    fill_with_random(context_, stream(), pointer_of(all), bytes / element, element);
    for (const int64_t begin : begins) inputs_.push_back(all + begin);
    if (has_segments()) write_segments();
    return !is_gradient() || run_forward(make_forward, forward);
  }

  // Documents of growing length, the same ids for queries and keys.
  void write_segments() {
    for (const size_t input : {3, 4}) {
      const int64_t rows = type(input).axes[0].size, length = type(input).axes[1].size;
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < rows * length; ++i) {
        const int64_t position = i % length;
        ids.push_back(
            static_cast<int32_t>(1 + kDocuments * position * position / (length * length)));
      }
      stream_->copy_from_host(inputs_[input], std::as_bytes(std::span(ids)));
    }
  }

  // The gradient's operands `out` and `lse` belong to the other operands.
  bool run_forward(OwnAttention::Make make, size_t count) {
    Graph graph;
    Node forward{.op = &kAttentionOp, .attributes = node_.attributes};
    for (size_t i = 0; i < count; ++i)
      forward.inputs.push_back(graph.add_input(fmt::format("x{}", i), InputKind::kBatch, type(i)));
    graph.add_node(std::move(forward), {type(count), type(count + 1)});
    const auto kernel = make(graph, graph.nodes().front(), context_);
    const std::vector<DeviceAddress> outputs = {inputs_[count], inputs_[count + 1]};
    return run(*kernel, {inputs_.data(), count}, outputs);
  }

  bool run(CudaKernel& kernel, std::span<const DeviceAddress> inputs,
           std::span<const DeviceAddress> outputs) {
    const DeviceAddress scratch = allocate(kernel.scratch_bytes());
    if (!memory_.complete()) return false;
    kernel.enqueue(stream(), {inputs, outputs, scratch});
    stream_->synchronize();
    return true;
  }

  // Elements that the kernel does not write are NaN.
  Values results(CudaKernel& kernel) {
    std::vector<DeviceAddress> outputs;
    for (const ValueId output : node_.outputs) {
      const int64_t bytes = graph_.type(output).bytes();
      outputs.push_back(allocate(bytes));
      if (!memory_.complete()) return {};
      context_.check(context_.driver().cuMemsetD8Async(pointer_of(outputs.back()), 0xff,
                                                       static_cast<size_t>(bytes), stream()),
                     "comparing attention");
    }
    if (!run(kernel, inputs_, outputs)) return {};
    Values values;
    for (size_t i = 0; i < outputs.size(); ++i)
      values.push_back(first_and_last(graph_.type(node_.outputs[i]), outputs[i]));
    return values;
  }

  std::vector<double> first_and_last(const Type& type, DeviceAddress from) {
    const int64_t examples = type.axes[0].size, bytes = type.bytes() / examples;
    std::vector<std::byte> copy(static_cast<size_t>(2 * bytes));
    stream_->copy_to_host(std::span(copy).first(static_cast<size_t>(bytes)), from);
    stream_->copy_to_host(std::span(copy).last(static_cast<size_t>(bytes)),
                          from + (examples - 1) * bytes);
    stream_->synchronize();
    return numbers_of(type.dtype, copy);
  }

  static std::string difference_of(const std::vector<double>& own,
                                   const std::vector<double>& other) {
    double squares = 0.0, difference = 0.0, largest = 0.0, most = 0.0;
    for (size_t i = 0; i < own.size(); ++i) {
      const double off = std::abs(other[i] - own[i]);
      if (!std::isfinite(off)) return ": it is not finite";
      squares += own[i] * own[i], difference += off * off;
      largest = std::max(largest, std::abs(own[i])), most = std::max(most, off);
    }
    if (difference <= kLargestMean * kLargestMean * squares && most <= kLargestOfAll * largest)
      return "";
    return fmt::format(
        " by {:.2g} of its root mean square, in one element by {:.2g} of the largest",
        std::sqrt(difference / squares), most / largest);
  }

  CUstream stream() const { return native(*stream_); }

  const Graph& graph_;
  const Node& node_;
  Context& context_;
  TrialMemory memory_;
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceAddress> inputs_;
};

}  // namespace

std::string attention_difference(const Graph& graph, const Node& node, Context& context,
                                 const OwnAttention& own, CudaKernel& other) {
  return AttentionTrial(graph, node, context).difference(own, other);
}

}  // namespace tessera::cuda
