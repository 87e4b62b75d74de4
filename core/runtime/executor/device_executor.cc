// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/device_executor.h"

#include <chrono>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/collective.h"
#include "core/runtime/executor/device_kinds.h"

namespace tessera {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Pairs the graphs of a plan with this device's. CHECKs that they are alike.
void pair_graphs(const Graph& planned, const Graph& own,
                 std::map<const Graph*, const Graph*>& pairs) {
  pairs[&planned] = &own;
  CHECK(planned.nodes().size() == own.nodes().size(), "devices have {} and {} nodes",
        planned.nodes().size(), own.nodes().size());
  for (const NodeId id : planned.nodes().ids()) {
    const Node &a = planned.node(id), &b = own.node(id);
    CHECK(a.op == b.op && a.inputs == b.inputs && a.outputs == b.outputs &&
              a.bodies.size() == b.bodies.size(),
          "node {} is {} on one device and {} on another", id, a.op->name, b.op->name);
    for (const ValueId value : a.outputs) CHECK(planned.type(value) == own.type(value));
    for (size_t body = 0; body < a.bodies.size(); ++body)
      pair_graphs(*a.bodies[body], *b.bodies[body], pairs);
  }
}

}  // namespace

DeviceExecutor::DeviceExecutor(Device& device, int64_t number, Communicator* communicator)
    : device_(device), number_(number), communicator_(communicator), kernels_(device) {}

DeviceExecutor::~DeviceExecutor() {
  communication_.reset();  // It works in the arena.
  if (arena_ != nullptr) device_.release(arena_, bytes_);
}

KernelFacts DeviceExecutor::facts() {
  return {.scratch_bytes =
              [this](const Graph& graph, const Node& node) {
                return is_collective(node) ? collective_needs(graph, node).scratch_bytes
                                           : kernels_.get(graph, node).scratch_bytes();
              },
          .may_overwrite =
              [this](const Graph& graph, const Node& node, int64_t output, int64_t input) {
                return is_collective(node) ? collective_needs(graph, node).may_overwrite
                                           : kernels_.get(graph, node).may_overwrite(output, input);
              }};
}

CollectiveNeeds DeviceExecutor::collective_needs(const Graph& graph, const Node& node) const {
  return find_device_kind(device_.kind()).collective_needs(graph, node);
}

bool DeviceExecutor::allocate(int64_t bytes) {
  CHECK(arena_ == nullptr);
  arena_ = device_.allocate(bytes);
  bytes_ = bytes;
  return arena_ != nullptr;
}

Kernel& DeviceExecutor::kernel(const Graph& graph, const Node& node) {
  if (!is_collective(node)) return kernels_.get(graph, node);
  CHECK(communicator_ != nullptr, "a collective without a communicator");
  std::unique_ptr<Kernel>& kernel = collectives_[&node];
  if (!kernel) kernel = communicator_->prepare(number_, graph, node);
  return *kernel;
}

void DeviceExecutor::add_program(const StepPlan& plan, const Graph& graph) {
  CHECK(arena_ != nullptr);
  std::map<const Graph*, const Graph*> own;
  pair_graphs(*plan.graph, graph, own);
  own[plan.helpers.get()] = plan.helpers.get();
  Program& program = programs_.emplace_back();
  program.launches.reserve(plan.launches.size());
  for (const Launch& launch : plan.launches) {
    PreparedLaunch& prepared = program.launches.emplace_back();
    prepared.graph = own.at(launch.graph);
    prepared.node = &prepared.graph->node(launch.node);
    prepared.kernel = &kernel(*prepared.graph, *prepared.node);
    prepare(plan, launch, &prepared);
    if (launch.kind == LaunchKind::kStart) {
      prepared.start = static_cast<int64_t>(program.starts.size());
      program.starts.push_back(program.launches.size() - 1);
    } else if (launch.kind == LaunchKind::kWait) {
      prepared.start = program.launches[launch.waits_for.index()].start;
    }
  }
  if (program.starts.empty() || communication_) return;
  communication_ = std::make_unique<SideThread>([this](int64_t number) {
    launch(running_->launches[running_->starts[static_cast<size_t>(number)]],
           Track::kCommunication);
  });
}

// Its addresses.
void DeviceExecutor::prepare(const StepPlan& plan, const Launch& launch,
                             PreparedLaunch* prepared) const {
  for (const int64_t offset : launch.inputs) prepared->inputs.push_back(at(offset));
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    prepared->outputs.push_back(at(launch.outputs[i]));
    if (launch.outputs[i] < plan.persistent_bytes)
      prepared->persistent.emplace_back(
          prepared->outputs.back(),
          static_cast<size_t>(prepared->graph->type(prepared->node->outputs[i]).bytes()));
  }
  prepared->scratch = at(launch.scratch);
  prepared->kind = launch.kind;
}

void DeviceExecutor::launch(const PreparedLaunch& launch, Track track) const {
  LaunchTimes times{.device = number_, .track = track, .kind = launch.kind};
  if (*observer_) times.begin_ns = now_ns();
  if (launch.kind == LaunchKind::kWait) {
    communication_->wait(launch.start);
  } else {
    if (*guard_)
      for (const std::span<const std::byte> bytes : launch.persistent) (*guard_)(bytes);
    launch.kernel->run(
        {.inputs = launch.inputs, .outputs = launch.outputs, .scratch = launch.scratch});
  }
  if (!*observer_) return;
  times.end_ns = now_ns();
  (*observer_)(*launch.graph, *launch.node, times);
}

void DeviceExecutor::run(int program, const LaunchObserver& observer, const WriteGuard& guard) {
  if (communication_) communication_->begin();
  running_ = &programs_[static_cast<size_t>(program)];
  observer_ = &observer;
  guard_ = &guard;
  for (const PreparedLaunch& each : running_->launches) {
    if (each.kind == LaunchKind::kStart) {
      communication_->start();
    } else {
      launch(each, Track::kCompute);
    }
  }
}

}  // namespace tessera
