// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/graph/verify.h"
#include "core/passes/fuse.h"
#include "core/passes/lower.h"
#include "core/passes/pack.h"
#include "core/passes/schedule.h"
#include "core/runtime/available_memory.h"
#include "core/runtime/kernel_cache.h"

namespace tessera {
namespace {

#ifdef NDEBUG
constexpr bool kAlwaysVerify = false;
#else
constexpr bool kAlwaysVerify = true;
#endif

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0); }

// One launch with its addresses resolved.
struct PreparedLaunch {
  Kernel* kernel = nullptr;
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::byte* scratch = nullptr;
};

struct Program {
  StepPlan plan;
  std::vector<SavedValue> saved;
  std::vector<PreparedLaunch> launches;
};

const Placement& find_placement(const std::vector<Placement>& placements, std::string_view name,
                                std::string_view what) {
  std::vector<std::string> names;
  for (const Placement& placement : placements) {
    if (placement.name == name) return placement;
    names.push_back(placement.name);
  }
  fail("the program has no {} '{}'{}", what, name, did_you_mean(name, names));
}

void check_size(const Placement& placement, size_t bytes) {
  if (static_cast<int64_t>(bytes) == placement.type.bytes()) return;
  fail("{} is {}, {} bytes; got {}", placement.name, placement.type.text_sized(),
       placement.type.bytes(), bytes);
}

// The passes before planning, each checked and shown as asked.
Graph compile(const Graph& traced, const CompileOptions& options, std::vector<SavedValue>& saved) {
  const auto stage = [&](std::string_view name, const Graph& graph, const Mesh& mesh) {
    if (options.verify_passes || kAlwaysVerify) verify(graph, mesh, name);
    if (options.on_stage) options.on_stage(name, graph);
  };
  stage("trace", traced, options.mesh);
  Graph graph = rematerialize(traced, options.remat, &saved);
  stage("remat", graph, options.mesh);
  const Mesh local;  // What follows is one device's.
  graph = lower(graph, options.mesh);
  stage("lower", graph, local);
  graph = fuse(graph);
  stage("fuse", graph, local);
  graph = schedule(graph);
  stage("schedule", graph, local);
  return graph;
}

}  // namespace

struct Executor::Impl {
  explicit Impl(Device& used) : device(used), kernels(used) {}

  ~Impl() {
    if (arena != nullptr) device.release(arena, bytes);
  }

  Program& program(int number) { return programs[static_cast<size_t>(number)]; }

  // Where a placement lies; CHECKs that there is an arena.
  std::byte* at(const Placement& placement) const {
    CHECK(arena != nullptr, "allocate() comes before data");
    return arena + placement.offset;
  }

  const Placement& state(std::string_view name) const {
    return find_placement(persistent, name, "parameter or state");
  }

  // Of one arena for all programs so far.
  int64_t planned_bytes() const {
    int64_t above = 0;
    for (const Program& program : programs)
      above = std::max(above, program.plan.arena_bytes - program.plan.persistent_bytes);
    return persistent_bytes + above;
  }

  // Offsets above the persistent ones move up when a later program adds to those.
  void move_up(StepPlan& plan) const {
    const int64_t shift = persistent_bytes - plan.persistent_bytes;
    const auto move = [&](int64_t& offset) {
      if (offset >= plan.persistent_bytes) offset += shift;
    };
    for (Launch& launch : plan.launches) {
      for (int64_t& offset : launch.inputs) move(offset);
      for (int64_t& offset : launch.outputs) move(offset);
      move(launch.scratch);
    }
    for (Placement& input : plan.inputs) move(input.offset);
    for (Placement& output : plan.outputs) move(output.offset);
    plan.arena_bytes += shift;
    plan.persistent_bytes = persistent_bytes;
  }

  void prepare(Program& program) {
    program.launches.reserve(program.plan.launches.size());
    for (const Launch& launch : program.plan.launches) {
      const Node& node = launch.graph->node(launch.node);
      PreparedLaunch& prepared = program.launches.emplace_back();
      prepared.kernel = &kernels.get(*launch.graph, node);
      prepared.graph = launch.graph;
      prepared.node = &node;
      for (const int64_t offset : launch.inputs) prepared.inputs.push_back(arena + offset);
      for (const int64_t offset : launch.outputs) prepared.outputs.push_back(arena + offset);
      prepared.scratch = arena + launch.scratch;
    }
  }

  Device& device;
  KernelCache kernels;
  std::vector<Program> programs;
  std::vector<Placement> persistent;
  std::vector<Buffer> buffers;  // As `persistent`.
  int64_t persistent_bytes = 0;
  std::byte* arena = nullptr;
  int64_t bytes = 0;
  LaunchObserver observer;
};

Executor::Executor(Device& device) : impl_(std::make_unique<Impl>(device)) {}
Executor::~Executor() = default;

int Executor::add_program(const Graph& traced, const CompileOptions& options) {
  CHECK(impl_->arena == nullptr, "programs are added before allocate()");
  Program program;
  Graph graph = compile(traced, options, program.saved);
  const KernelFacts facts = {
      .scratch_bytes =
          [this](const Graph& g, const Node& node) {
            return impl_->kernels.get(g, node).scratch_bytes();
          },
      .may_overwrite =
          [this](const Graph& g, const Node& node, int64_t output, int64_t input) {
            return impl_->kernels.get(g, node).may_overwrite(output, input);
          }};
  program.plan = plan_memory(std::move(graph), facts, impl_->persistent);
  for (const Placement& input : program.plan.inputs) {
    const bool stays = input.kind == InputKind::kParameter || input.kind == InputKind::kState;
    const bool known = std::any_of(impl_->persistent.begin(), impl_->persistent.end(),
                                   [&](const Placement& p) { return p.name == input.name; });
    if (!stays || known) continue;
    impl_->persistent.push_back(input);
    impl_->buffers.push_back({input.name, input.kind, input.type});
  }
  impl_->persistent_bytes = program.plan.persistent_bytes;
  impl_->programs.push_back(std::move(program));
  impl_->bytes = impl_->planned_bytes();
  return static_cast<int>(impl_->programs.size()) - 1;
}

void Executor::allocate() {
  CHECK(impl_->arena == nullptr, "allocate() is called once");
  for (Program& program : impl_->programs) impl_->move_up(program.plan);
  const int64_t there = available_memory();
  if (impl_->bytes <= there) impl_->arena = impl_->device.allocate(impl_->bytes);
  if (impl_->arena == nullptr) {
    fail(
        "the plan needs {:.2f} GiB ({} bytes), of which {:.2f} GiB parameters and state, but "
        "{:.2f} GiB are available; lower the batch or the model, or save less for the backward "
        "pass (remat policy)",
        gib(impl_->bytes), impl_->bytes, gib(impl_->persistent_bytes), gib(there));
  }
  for (Program& program : impl_->programs) impl_->prepare(program);
}

int64_t Executor::arena_bytes() const { return impl_->bytes; }
const StepPlan& Executor::plan(int program) const { return impl_->program(program).plan; }
const std::vector<SavedValue>& Executor::saved_values(int program) const {
  return impl_->program(program).saved;
}
const std::vector<Buffer>& Executor::persistent() const { return impl_->buffers; }

void Executor::write_state(std::string_view name, std::span<const std::byte> bytes) {
  const Placement& placement = impl_->state(name);
  check_size(placement, bytes.size());
  impl_->device.write(impl_->at(placement), bytes);
}

void Executor::read_state(std::string_view name, std::span<std::byte> bytes) const {
  const Placement& placement = impl_->state(name);
  check_size(placement, bytes.size());
  impl_->device.read(bytes, impl_->at(placement));
}

std::span<std::byte> Executor::host_view(std::string_view name) {
  const Placement& placement = impl_->state(name);
  return {impl_->at(placement), static_cast<size_t>(placement.type.bytes())};
}

void Executor::write_input(int program, std::string_view name, std::span<const std::byte> bytes) {
  const Placement& placement = find_placement(impl_->program(program).plan.inputs, name, "input");
  check_size(placement, bytes.size());
  impl_->device.write(impl_->at(placement), bytes);
}

void Executor::run(int program) {
  CHECK(impl_->arena != nullptr, "allocate() comes before run()");
  for (const PreparedLaunch& launch : impl_->program(program).launches) {
    const int64_t begin = impl_->observer ? now_ns() : 0;
    launch.kernel->run(
        {.inputs = launch.inputs, .outputs = launch.outputs, .scratch = launch.scratch});
    if (impl_->observer) impl_->observer(*launch.graph, *launch.node, begin, now_ns());
  }
}

void Executor::read_output(int program, std::string_view name, std::span<std::byte> bytes) const {
  const Placement& placement = find_placement(impl_->program(program).plan.outputs, name, "output");
  check_size(placement, bytes.size());
  impl_->device.read(bytes, impl_->at(placement));
}

float Executor::read_scalar(int program, std::string_view name) const {
  float value = 0.0f;
  read_output(program, name, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void Executor::observe(LaunchObserver observer) { impl_->observer = std::move(observer); }

}  // namespace tessera
