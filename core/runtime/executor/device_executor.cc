// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/device_executor.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/devices/reference/array.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/device_kinds.h"

namespace tessera {
namespace {

// Appends all that a kernel may depend on: op, attributes, types of operands and results, bodies.
void append_signature(const Graph& graph, const Node& node, std::string& text) {
  const auto append_types = [&](const std::vector<ValueId>& values) {
    for (const ValueId value : values) graph.type(value).append_sized(text);
  };
  const auto append_values = [&](const std::vector<ValueId>& values) {
    for (const ValueId value : values) {
      append_number(value.value(), text);
      text += ',';
    }
  };
  text += node.op->name;
  text += ' ';
  node.attributes.append_to(text);
  text += ' ';
  append_types(node.inputs);
  text += "->";
  append_types(node.outputs);
  for (const auto& body : node.bodies) {
    text += '{';
    for (const GraphInput& input : body->inputs()) {
      append_values({input.value});
      body->type(input.value).append_sized(text);
    }
    for (const Node& inner : body->nodes()) {
      append_signature(*body, inner, text);
      append_values(inner.outputs);
      text += '=';
      append_values(inner.inputs);
    }
    text += ':';
    for (const GraphOutput& output : body->outputs()) append_values({output.value});
    text += '}';
  }
}

// Pairs the graphs of a plan with this device's. CHECKs that they have the same structure.
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

// Returns the device's own graph for each graph of the plan.
std::map<const Graph*, const Graph*> own_graphs(const StepProgram& plan, const Graph& graph) {
  std::map<const Graph*, const Graph*> own;
  pair_graphs(*plan.graph, graph, own);
  own[plan.helpers.get()] = plan.helpers.get();
  return own;
}

// Throws the error of a launch. `others` are launches that may have failed instead of this one.
[[noreturn]] void fail_launch(const Node& node, std::string_view others, std::string_view what) {
  fail("{}: op '{}'{} failed: {} [in {}]", node.site.text(), node.op->name, others, what,
       node.path.empty() ? "the step" : node.path);
}

}  // namespace

DeviceExecutor::DeviceExecutor(Device& device, int64_t number, Communicator* communicator)
    : device_(device), number_(number), communicator_(communicator) {}

DeviceExecutor::~DeviceExecutor() {
  end_streams();
  if (!arena_.is_null()) device_.release(arena_, bytes_);
}

void DeviceExecutor::end_streams() {
  communication_.reset();
  compute_.reset();
}

CollectiveNeeds DeviceExecutor::collective_needs(const Graph& graph, const Node& node) const {
  return find_device_kind(device_.kind()).collective_needs(graph, node);
}

KernelFacts DeviceExecutor::facts() {
  return {.scratch_bytes =
              [this](const Graph& graph, const Node& node) {
                return is_collective(node) ? collective_needs(graph, node).scratch_bytes
                                           : kernel(graph, node).scratch_bytes();
              },
          .may_overwrite =
              [this](const Graph& graph, const Node& node, int64_t output, int64_t input) {
                return is_collective(node) ? collective_needs(graph, node).may_overwrite
                                           : kernel(graph, node).may_overwrite(output, input);
              }};
}

bool DeviceExecutor::allocate(int64_t bytes) {
  CHECK(arena_.is_null());
  arena_ = device_.allocate(bytes);
  bytes_ = bytes;
  if (arena_.is_null()) return false;
  compute_ = device_.make_stream(StreamUse::kCompute);
  for (Run& run : runs_) run.end = device_.make_event();
  return true;
}

Kernel& DeviceExecutor::kernel(const Graph& graph, const Node& node) {
  std::shared_ptr<Kernel>& kernel = kernels_[&node];
  if (kernel) return *kernel;
  if (is_collective(node)) {
    CHECK(communicator_ != nullptr, "a collective without a communicator");
    kernel = communicator_->prepare(number_, graph, node);
    return *kernel;
  }
  signature_.clear();
  append_signature(graph, node, signature_);
  std::shared_ptr<Kernel>& shared = kernels_by_signature_[signature_];
  if (!shared) shared = device_.prepare(graph, node);
  kernel = shared;
  return *kernel;
}

void DeviceExecutor::prepare_collectives(const StepProgram& plan, const Graph& graph) {
  const auto own = own_graphs(plan, graph);
  for (const Launch& launch : plan.launches) {
    const Graph& of = *own.at(launch.graph);
    if (is_collective(of.node(launch.node))) kernel(of, of.node(launch.node));
  }
}

void DeviceExecutor::add_program(const StepProgram& plan, const Graph& graph) {
  CHECK(compute_ != nullptr);
  const auto own = own_graphs(plan, graph);
  Program& program = programs_.emplace_back();
  program.launches.reserve(plan.launches.size());
  for (const Launch& launch : plan.launches) {
    program.launches.push_back(prepare(plan, launch, *own.at(launch.graph)));
    if (launch.kind == LaunchKind::kStart && !communication_)
      communication_ = device_.make_stream(StreamUse::kCommunication);
  }
}

DeviceExecutor::PreparedLaunch DeviceExecutor::prepare(const StepProgram& plan,
                                                       const Launch& launch, const Graph& graph) {
  PreparedLaunch prepared;
  prepared.graph = &graph;
  prepared.node = &graph.node(launch.node);
  prepared.kernel = &kernel(graph, *prepared.node);
  prepared.kind = launch.kind;
  if (launch.task >= 0) prepared.task = plan.tasks[static_cast<size_t>(launch.task)];
  for (const int64_t offset : launch.inputs) prepared.inputs.push_back(arena_ + offset);
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    prepared.outputs.push_back(arena_ + launch.outputs[i]);
    if (launch.outputs[i] < plan.persistent_bytes)
      prepared.persistent.push_back(
          buffer(launch.outputs[i], graph.type(prepared.node->outputs[i]).bytes()));
  }
  prepared.scratch = arena_ + launch.scratch;
  if (launch.kind == LaunchKind::kWait) prepared.start = launch.waits_for.index();
  if (launch.kind == LaunchKind::kStart) {
    prepared.ready = device_.make_event();
    prepared.done = device_.make_event();
  }
  return prepared;
}

void DeviceExecutor::copy_from_host(int64_t offset, std::span<const std::byte> from) {
  compute_->copy_from_host(arena_ + offset, from);
}

void DeviceExecutor::copy_to_host(std::span<std::byte> to, int64_t offset) {
  compute_->copy_to_host(to, arena_ + offset);
  compute_->synchronize();
}

// Returns the launches that may have failed: on each stream those after the last that is done. It
// leaves out launches on the compute stream that wait for an unfinished collective, and collectives
// that wait for an unfinished launch, since neither can have begun.
std::vector<const DeviceExecutor::PreparedLaunch*> DeviceExecutor::suspects(const Run& run) const {
  const Program& program = programs_[run.program];
  const LaunchProgress computed = compute_->progress();
  const LaunchProgress communicated =
      communication_ ? communication_->progress() : LaunchProgress{};
  std::vector<const PreparedLaunch*> found;
  int64_t runs = 0, starts = 0;
  std::vector<bool> is_done(run.enqueued);
  for (size_t i = 0; i < run.enqueued; ++i) {
    const PreparedLaunch& launch = program.launches[i];
    if (launch.kind == LaunchKind::kWait) {
      if (is_done[launch.start]) continue;
      break;
    }
    const bool computes = launch.kind == LaunchKind::kRun;
    const auto [done, unknown] = computes ? computed : communicated;
    const int64_t number = computes ? runs++ : starts++;
    is_done[i] = number < done;
    if (computes && number >= done + unknown) break;
    if (number >= done && number < done + unknown) found.push_back(&launch);
  }
  return found;
}

void DeviceExecutor::fail_run(const Run& run, const LaunchFailure& failure) const {
  const auto found = suspects(run);
  if (found.empty()) throw failure;
  std::string others;
  const Node& last = *found.back()->node;
  if (found.size() > 1) others = fmt::format(" or op '{}' ({})", last.op->name, last.site.text());
  if (found.size() > 2)
    others += fmt::format(", or one of the {} launches between,", found.size() - 2);
  fail_launch(*found.front()->node, others, failure.what());
}

void DeviceExecutor::enqueue(const Program& program, const PreparedLaunch& launch,
                             LaunchTime* time) try {
  switch (launch.kind) {
    case LaunchKind::kRun:
      return compute_->launch(*launch.kernel, launch.args(), time);
    case LaunchKind::kStart:
      compute_->record(*launch.ready);
      communication_->wait(*launch.ready);
      communication_->launch(*launch.kernel, launch.args(), time);
      return communication_->record(*launch.done);
    case LaunchKind::kWait:
      return compute_->wait(*program.launches[launch.start].done, time);
  }
} catch (const LaunchRefused& refused) {
  fail_launch(*launch.node, "", refused.what());
}

// Enqueues all launches. Each start has its wait (core/compile/memory/overlap.cc), so at the end
// the compute stream has waited for the other.
void DeviceExecutor::enqueue_all(Run& run, Timing timing, const WriteGuard& guard) {
  Program& program = program_of(run);
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const PreparedLaunch& launch = program.launches[i];
    if (guard && launch.kind != LaunchKind::kWait)
      for (const DeviceBuffer& output : launch.persistent) guard(output);
    run.enqueued = i + 1;
    enqueue(program, launch, timing == Timing::kTimed ? &program.times[i] : nullptr);
  }
}

// Captures a run. The first run loads code and sets up libraries, which a capture does not allow.
// The second is captured, and the capture serves all later ones: no address in it ever changes.
void DeviceExecutor::capture(Run& run) {
  compute_->synchronize();
  auto captured = compute_->capture([&] { enqueue_all(run, Timing::kUntimed, nullptr); });
  const bool agreed =
      communicator_ == nullptr || communicator_->agree_on_capture(number_, captured != nullptr);
  if (agreed) program_of(run).captured = std::move(captured);
}

// Enqueues a run. Times of single launches are only known when they are enqueued one by one.
void DeviceExecutor::enqueue_run(Run& run, Timing timing, const WriteGuard& guard) {
  Program& program = program_of(run);
  if (program.runs++ == 1) capture(run);
  compute_->begin_run(*compute_);
  if (communication_) communication_->begin_run(*compute_);
  if (!program.captured || timing == Timing::kTimed) return enqueue_all(run, timing, guard);
  // The whole step waits, not only its update; a save delays at most one step.
  if (guard)
    for (const PreparedLaunch& launch : program.launches)
      for (const DeviceBuffer& output : launch.persistent) guard(output);
  run.enqueued = program.launches.size();
  compute_->launch(*program.captured, {});
}

void DeviceExecutor::copy_results(Run& run, std::span<const ResultPlace> places) {
  run.places.assign(places.begin(), places.end());
  size_t bytes = 0;
  for (const ResultPlace& place : places) bytes += place.bytes();
  if (bytes > run.room) {
    run.results = device_.host_memory(static_cast<int64_t>(bytes));
    run.room = bytes;
  }
  std::byte* to = run.results.get();
  for (const ResultPlace& place : places) {
    compute_->copy_to_host({to, place.bytes()}, arena_ + place.offset);
    to += place.bytes();
  }
}

void DeviceExecutor::start(int program, Timing timing, const WriteGuard& guard,
                           std::span<const ResultPlace> results) {
  CHECK(under_way_ < (timing == Timing::kTimed ? 1 : kMostRunsUnderWay), "{} runs are under way",
        under_way_);
  Run& run = run_under_way(under_way_);
  run.program = static_cast<size_t>(program);
  run.enqueued = 0;
  if (communicator_ != nullptr) communicator_->begin_run(number_);
  if (timing == Timing::kTimed) {
    Program& timed = program_of(run);
    timed.times.assign(timed.launches.size(), {});
  }
  try {
    enqueue_run(run, timing, guard);
    copy_results(run, results);
    compute_->record(*run.end);
  } catch (const LaunchFailure& failure) {
    if (under_way_ > 0) await_oldest();
    fail_run(run, failure);
  }
  ++under_way_;
  if (communicator_ != nullptr) communicator_->end_run(number_, program);
}

// Waits for the oldest run only, and reports its failure, not that of the run after it.
void DeviceExecutor::await_oldest() {
  const Run& run = run_under_way(0);
  try {
    compute_->synchronize(*run.end);
  } catch (const LaunchFailure& failure) {
    fail_run(run, failure);
  }
}

void DeviceExecutor::convert_results(Run& run) {
  size_t elements = 0;
  for (const ResultPlace& place : run.places) elements += static_cast<size_t>(place.elements);
  run.elements.resize(elements);
  std::span<double> to = run.elements;
  const std::byte* from = run.results.get();
  for (const ResultPlace& place : run.places) {
    const auto count = static_cast<size_t>(place.elements);
    decode_values(place.dtype, from, to.first(count));
    from += place.bytes();
    to = to.subspan(count);
  }
}

std::span<const double> DeviceExecutor::finish(const LaunchObserver& observer) {
  CHECK(under_way_ > 0, "no run is under way");
  Run& run = run_under_way(0);
  await_oldest();
  if (--under_way_ == 0) {
    compute_->synchronize();
    if (communication_) communication_->synchronize();
  }
  oldest_ = (oldest_ + 1) % kMostRunsUnderWay;
  if (communicator_ != nullptr) communicator_->require_running();
  if (observer) observe_launches(program_of(run), observer);
  convert_results(run);
  return run.elements;
}

void DeviceExecutor::observe_launches(const Program& program,
                                      const LaunchObserver& observer) const {
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const PreparedLaunch& launch = program.launches[i];
    observer(*launch.graph, *launch.node,
             {.device = number_,
              .track = launch.kind == LaunchKind::kStart ? Track::kCommunication : Track::kCompute,
              .kind = launch.kind,
              .task = launch.task,
              .begin_ns = program.times[i].begin_ns,
              .end_ns = program.times[i].end_ns});
  }
}

}  // namespace tessera
