// SPDX-License-Identifier: Apache-2.0
// A device that is not there, for plans of programs that would run on it: make_planned_device() of
// tasks/planner/prediction.h.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/devices/cpu/device.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/fp8.h"
#include "core/ops/inverse_root.h"
#include "core/ops/leaves.h"
#include "core/ops/newton_schulz.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/order.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/triangular_solve.h"
#include "core/runtime/executor/device_kinds.h"
#include "tasks/planner/prediction.h"

namespace tessera {
namespace {

constexpr std::string_view kPlannedDevice = "planned_device";
constexpr int64_t kNoOperand = -1;

// The operand that each result of one or several adam_update replaces, by number; kNoOperand: none.
// Empty for other nodes.
std::vector<int64_t> updated_operands(const Node& node) {
  std::vector<int64_t> operands;
  if (node.op == &kAdamUpdateOp) {
    for (size_t i = 0; i < node.outputs.size(); ++i) operands.push_back(static_cast<int64_t>(i));
  } else if (node.op == &kFusedUpdatesOp) {
    const Graph& body = *node.bodies[0];
    IndexedVector<ValueId, int64_t> replaced(body.values().size(), kNoOperand);
    IndexedVector<ValueId, int64_t> position(body.values().size(), kNoOperand);
    for (size_t i = 0; i < body.inputs().size(); ++i)
      position[body.inputs()[i].value] = static_cast<int64_t>(i);
    for (const Node& each : body.nodes())
      for (size_t i = 0; each.op == &kAdamUpdateOp && i < each.outputs.size(); ++i)
        replaced[each.outputs[i]] = position[each.inputs[i]];
    for (const GraphOutput& output : body.outputs()) operands.push_back(replaced[output.value]);
  }
  return operands;
}

// What CUDA's kernels allow (tests/plugins/cuda/planned_device_test.cc compares them): a result may
// overwrite an operand of its type, except where elements move. A product may overwrite what is
// added to it, a composite op its first operand, and an update the state that it replaces; sorting
// overwrites nothing.
class PlannedKernel final : public Kernel {
 public:
  PlannedKernel(const Graph& graph, const Node& node)
      : updated_(updated_operands(node)),
        is_composite_(node.op->decomposition != nullptr || node.op == &kFusedNormOp) {
    const OpClass of = node.op->op_class;
    const bool keeps =
        of == OpClass::kDataMovement || (of == OpClass::kOther && node.bodies.empty());
    if (keeps || !updated_.empty()) return;
    const size_t first = of == OpClass::kContraction ? 2 : 0;
    for (const ValueId output : node.outputs) outputs_.push_back(number_of(graph.type(output)));
    for (size_t i = 0; i < node.inputs.size(); ++i)
      inputs_.push_back(i < first ? kNoOperand : number_of(graph.type(node.inputs[i])));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    if (!updated_.empty()) return updated_[static_cast<size_t>(output)] == input;
    if (is_composite_ && (output != 0 || input != 0)) return false;
    return !outputs_.empty() &&
           outputs_[static_cast<size_t>(output)] == inputs_[static_cast<size_t>(input)];
  }

 private:
  // Equal types have one number, so that comparing is cheap.
  int64_t number_of(const Type& type) {
    const int64_t known = std::ranges::find(types_, type) - types_.begin();
    if (known == std::ssize(types_)) types_.push_back(type);
    return known;
  }

  std::vector<int64_t> updated_;
  bool is_composite_;
  std::vector<Type> types_;
  std::vector<int64_t> outputs_, inputs_;
};

// A device with the figures of a hardware file and without memory.
class DescribedDevice : public Device {
 public:
  explicit DescribedDevice(const Hardware& hardware) : hardware_(hardware) {}

  std::string description() const override { return fmt::format("{} (planned)", hardware_.title); }
  double peak_flops(DType dtype) const override { return hardware_.peak_flops(dtype); }
  int64_t available_bytes() const override { return arena_room(hardware_); }
  DeviceAddress allocate(int64_t) override { return {}; }
  void release(DeviceAddress, int64_t) override {}

 protected:
  const Hardware& hardware() const { return hardware_; }

 private:
  Hardware hardware_;
};

class PlannedDevice final : public DescribedDevice {
 public:
  using DescribedDevice::DescribedDevice;

  std::string_view kind() const override { return kPlannedDevice; }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return std::make_unique<PlannedKernel>(graph, node);
  }
  // Whether the CUDA device has a kernel for the op.
  bool has_kernel(const OpDef& op) const override {
    if (&op == &kFp8ProductOp) return fp8_peak(hardware()).has_value();
    const std::array<const OpDef*, 8> decomposed = {
        &kSortOp,      &kTriangularSolveOp, &kOwnLeafOp,      &kAllLeavesOp,
        &kAddLeavesOp, &kAttentionSinksOp,  &kNewtonSchulzOp, &kInverseRootOp,
    };
    return std::ranges::find(decomposed, &op) == decomposed.end();
  }
  std::unique_ptr<Stream> make_stream(StreamUse) override { return nothing_runs(); }
  std::unique_ptr<Event> make_event() override { return nothing_runs(); }

 private:
  static std::nullptr_t nothing_runs() { CHECK(false, "a planned device runs nothing"); }
};

// A CPU device that plans with this machine's kernels, whatever processor the file describes.
class PlannedCpu final : public DescribedDevice {
 public:
  explicit PlannedCpu(const Hardware& hardware)
      : DescribedDevice(hardware),
        cpu_(make_cpu_device(
            static_cast<int>(hardware.processor.value_or(SharedProcessor{}).threads))) {}

  std::string_view kind() const override { return cpu_->kind(); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return cpu_->prepare(graph, node);
  }
  bool has_kernel(const OpDef& op) const override { return cpu_->has_kernel(op); }
  std::unique_ptr<Stream> make_stream(StreamUse use) override { return cpu_->make_stream(use); }
  std::unique_ptr<Event> make_event() override { return cpu_->make_event(); }

 private:
  std::unique_ptr<Device> cpu_;
};

CollectiveNeeds planned_collective_needs(const Graph&, const Node& node) {
  return {.scratch_bytes = 0, .may_overwrite = node.op == &kAllReduceOp};
}

}  // namespace

std::unique_ptr<Device> make_planned_device(const Hardware& hardware) {
  if (hardware.kind == HardwareKind::kCpu) return std::make_unique<PlannedCpu>(hardware);
  register_device_kind(kPlannedDevice, {.make_devices = nullptr,
                                        .make_communicator = nullptr,
                                        .collective_needs = planned_collective_needs,
                                        .overlaps = true});
  return std::make_unique<PlannedDevice>(hardware);
}

}  // namespace tessera
