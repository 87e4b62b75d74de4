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
#include "plugins/cuda/device/timing.h"
#include "plugins/cuda/gemm/node_trial.h"

namespace tessera::cuda {
namespace {

constexpr double kLargestMean = 1.0 / 64, kLargestOfAll = 1.0 / 8;
constexpr std::string_view kNoMemory =
    "results cannot be compared with theirs: the GPU has no memory for it";

class AttentionTrial {
 public:
  AttentionTrial(const Graph& graph, const Node& node, Context& context)
      : graph_(graph), node_(node), context_(context), trial_(graph, node, context) {}

  AttentionTrialResult run(const OwnAttention& own, CudaKernel& other) {
    const WorkTimer timer(context_);
    const AttentionTrialResult no_memory{.difference = std::string(kNoMemory)};
    if (!timer.has_memory() || !trial_.has_memory() || !make_inputs(own.forward)) return no_memory;
    const auto ours = own.kernel(graph_, node_, context_);
    const Places own_places = trial_.places_for(*ours), places = trial_.places_for(other);
    if (!trial_.has_memory()) return no_memory;
    const Values expected = results(*ours, own_places), got = results(other, places);
    for (size_t i = 0; i < got.size(); ++i)
      if (std::string text = difference_of(expected[i], got[i]); !text.empty())
        return {.difference = fmt::format("result {} of {} differs from theirs{}", i,
                                          graph_.type(node_.outputs[i]).text_sized(), text)};
    return {.is_faster =
                time_of(timer, other, args(places)) < time_of(timer, *ours, args(own_places))};
  }

 private:
  using Values = std::vector<std::vector<double>>;  // Elements of each result.
  using Places = NodeTrial::Places;

  const Type& type(size_t input) const { return graph_.type(node_.inputs[input]); }

  // False without memory.
  bool make_inputs(OwnAttention::Make make_forward) {
    return node_.op != &kAttentionGradOp || run_forward(make_forward);
  }

  // The gradient's operands `out` and `lse` belong to the other operands.
  bool run_forward(OwnAttention::Make make) {
    constexpr size_t count = 3;  // q, k and v.
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

  LaunchArgs args(const Places& places) {
    return {trial_.inputs(), places.outputs, places.scratch};
  }
  static float time_of(const WorkTimer& timer, CudaKernel& kernel, const LaunchArgs& args) {
    const auto work = [&] {
      kernel.enqueue(timer.stream(), args);
      return true;
    };
    return *timer.least_time(work);
  }
  // Returns the results of the first and the last example.
  Values results(CudaKernel& kernel, const Places& places) {
    trial_.run(kernel, args(places));
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

AttentionTrialResult try_attention(const Graph& graph, const Node& node, Context& context,
                                   const OwnAttention& own, CudaKernel& other) {
  return AttentionTrial(graph, node, context).run(own, other);
}

}  // namespace tessera::cuda
