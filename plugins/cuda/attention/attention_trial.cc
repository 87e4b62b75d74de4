// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/attention_trial.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/ops/attention.h"
#include "plugins/cuda/gemm/node_trial.h"

namespace tessera::cuda {
namespace {

constexpr double kLargestMean = 1.0 / 64, kLargestOfAll = 1.0 / 8;
constexpr std::string_view kNoMemory =
    "results cannot be compared with theirs: the GPU has no memory for it";
constexpr int kDocuments = 3;  // In a row with segments.

class AttentionTrial {
 public:
  AttentionTrial(const Graph& graph, const Node& node, Context& context)
      : graph_(graph), node_(node), context_(context), trial_(graph, node, context) {}

  std::string difference(const OwnAttention& own, CudaKernel& other) {
    if (!trial_.has_memory() || !make_inputs(own.forward)) return std::string(kNoMemory);
    const Values expected = results(*own.kernel(graph_, node_, context_)), got = results(other);
    if (!trial_.has_memory()) return std::string(kNoMemory);
    for (size_t i = 0; i < got.size(); ++i)
      if (std::string text = difference_of(expected[i], got[i]); !text.empty())
        return fmt::format("result {} of {} differs from theirs{}", i,
                           graph_.type(node_.outputs[i]).text_sized(), text);
    return "";
  }

 private:
  using Values = std::vector<std::vector<double>>;  // Elements of each result.

  const Type& type(size_t input) const { return graph_.type(node_.inputs[input]); }
  bool has_segments() const { return node_.attributes.get<int64_t>("segments") != 0; }

  // False without memory.
  bool make_inputs(OwnAttention::Make make_forward) {
    if (has_segments()) write_segments();
    return node_.op != &kAttentionGradOp || run_forward(make_forward, has_segments() ? 5 : 3);
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
      trial_.write_input(input, std::as_bytes(std::span(ids)));
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
    const DeviceAddress scratch = trial_.scratch_for(*kernel);
    const std::span<const DeviceAddress> inputs(trial_.inputs());
    if (trial_.has_memory())
      trial_.run(*kernel, {inputs.first(count), inputs.subspan(count, 2), scratch});
    return trial_.has_memory();
  }

  // Returns the results of the first and the last example.
  Values results(CudaKernel& kernel) {
    const NodeTrial::Places places = trial_.places_for(kernel);
    if (!trial_.has_memory()) return {};
    trial_.run(kernel, {trial_.inputs(), places.outputs, places.scratch});
    Values values;
    for (size_t i = 0; i < places.outputs.size(); ++i) {
      const Type& type = graph_.type(node_.outputs[i]);
      values.push_back(trial_.ends(places, i, type.elements() / type.axes[0].size));
    }
    return values;
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

  const Graph& graph_;
  const Node& node_;
  Context& context_;
  NodeTrial trial_;
};

}  // namespace

std::string attention_difference(const Graph& graph, const Node& node, Context& context,
                                 const OwnAttention& own, CudaKernel& other) {
  return AttentionTrial(graph, node, context).difference(own, other);
}

}  // namespace tessera::cuda
