// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan/prediction.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/fp8.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/device_kinds.h"
#include "core/runtime/executor/launch_trace.h"

namespace tessera {
namespace {

constexpr std::string_view kPlannedDevice = "planned_device";

// What CUDA's kernels allow: a result may overwrite an operand of its type, except where elements
// move; a product may overwrite what is added to it.
class PlannedKernel final : public Kernel {
 public:
  PlannedKernel(const Graph& graph, const Node& node) {
    if (node.op->op_class == OpClass::kDataMovement) return;
    const size_t first = node.op->op_class == OpClass::kContraction ? 2 : 0;
    for (const ValueId output : node.outputs) outputs_.push_back(number_of(graph.type(output)));
    for (size_t i = 0; i < node.inputs.size(); ++i)
      inputs_.push_back(i < first ? kNone : number_of(graph.type(node.inputs[i])));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return !outputs_.empty() &&
           outputs_[static_cast<size_t>(output)] == inputs_[static_cast<size_t>(input)];
  }

 private:
  static constexpr int64_t kNone = -1;

  // Equal types have one number, so that comparing is cheap: the update of a model has an output
  // and several inputs for each parameter.
  int64_t number_of(const Type& type) {
    const auto known = std::ranges::find(types_, type);
    if (known == types_.end()) types_.push_back(type);
    return known - types_.begin();
  }

  std::vector<Type> types_;
  std::vector<int64_t> outputs_, inputs_;
};

class PlannedDevice final : public Device {
 public:
  explicit PlannedDevice(const Hardware& hardware) : hardware_(hardware) {}

  std::string_view kind() const override { return kPlannedDevice; }
  std::string description() const override { return fmt::format("{} (planned)", hardware_.title); }
  double peak_flops(DType dtype) const override { return hardware_.peak_flops(dtype); }
  int64_t available_bytes() const override { return hardware_.memory.bytes; }
  DeviceAddress allocate(int64_t) override { return {}; }
  void release(DeviceAddress, int64_t) override {}
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return std::make_unique<PlannedKernel>(graph, node);
  }
  // Those of the CUDA device, which runs this as its decomposition.
  bool has_kernel(const OpDef& op) const override { return &op != &kFp8ProductOp; }
  std::unique_ptr<Stream> make_stream(StreamUse) override { return nothing_runs(); }
  std::unique_ptr<Event> make_event() override { return nothing_runs(); }

 private:
  static std::nullptr_t nothing_runs() { CHECK(false, "a planned device runs nothing"); }

  Hardware hardware_;
};

CollectiveNeeds planned_collective_needs(const Graph&, const Node& node) {
  return {.scratch_bytes = 0, .may_overwrite = node.op == &kAllReduceOp};
}

// A device's compute stream, and beside it its stream of collectives.
class Timeline {
 public:
  // Returns what the launch adds to the compute stream.
  double run(double seconds) {
    compute_ += seconds;
    return seconds;
  }
  void start(LaunchId id, double seconds) {
    communication_ = std::max(communication_, compute_) + seconds;
    done_[id] = communication_;
  }
  double wait(LaunchId start) {
    const double waited = std::max(0.0, done_.at(start) - compute_);
    compute_ += waited;
    return waited;
  }
  double end() const { return std::max(compute_, communication_); }

 private:
  double compute_ = 0.0, communication_ = 0.0;
  std::map<LaunchId, double> done_;
};

// FLOPs of a launch that count for MFU.
double model_flops_of(const Node& node, const LaunchCost& cost) {
  const bool counts = node.op->op_class == OpClass::kContraction && !node.remat_clone;
  return counts ? cost.flops : 0.0;
}

PricedLaunch priced(const Launch& launch, const Mesh& mesh, const Hardware& hardware) {
  const Node& node = launch.graph->node(launch.node);
  PricedLaunch result{.name = launch_name(node, LaunchKind::kRun),
                      .path = node.path,
                      .source = node.site.text(),
                      .phase = node.phase,
                      .op = node.op,
                      .cost = launch_cost(*launch.graph, node, mesh, hardware)};
  result.model_flops = model_flops_of(node, result.cost);
  if (result.model_flops > 0.0) {
    const DType dtype = launch.graph->type(node.inputs[0]).dtype;
    result.ideal = result.model_flops / hardware.peak_flops(dtype);
  }
  return result;
}

}  // namespace

Prediction predict(const StepPlan& step, const Mesh& mesh, int64_t tokens,
                   const Hardware& hardware) {
  Prediction prediction{.hardware = hardware};
  std::map<const Node*, PricedLaunch> prices;  // The iterations of a loop have one.
  std::map<LaunchId, size_t> starts;           // Their places among `launches`.
  Timeline timeline;
  double ideal = 0.0;
  for (const LaunchId id : step.launches.ids()) {
    const Launch& launch = step.launches[id];
    if (launch.kind == LaunchKind::kWait) {
      prediction.launches[starts.at(launch.waits_for)].adds += timeline.wait(launch.waits_for);
      continue;
    }
    const Node* node = &launch.graph->node(launch.node);
    auto known = prices.find(node);
    if (known == prices.end()) known = prices.emplace(node, priced(launch, mesh, hardware)).first;
    PricedLaunch one = known->second;
    if (launch.kind == LaunchKind::kStart) {
      timeline.start(id, one.cost.seconds);
      starts[id] = prediction.launches.size();
    } else {
      one.adds = timeline.run(one.cost.seconds);
    }
    ideal += one.ideal;
    prediction.launches.push_back(std::move(one));
  }
  prediction.step_seconds = timeline.end();
  if (prediction.step_seconds > 0.0) {
    prediction.tokens_per_second = static_cast<double>(tokens) / prediction.step_seconds;
    prediction.mfu = ideal / prediction.step_seconds;
  }
  return prediction;
}

std::unique_ptr<Device> make_planned_device(const Hardware& hardware) {
  register_device_kind(kPlannedDevice, {.make_devices = nullptr,
                                        .make_communicator = nullptr,
                                        .collective_needs = planned_collective_needs,
                                        .overlaps = true});
  return std::make_unique<PlannedDevice>(hardware);
}

}  // namespace tessera
