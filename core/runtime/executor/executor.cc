// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/executor.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/runtime/executor/compile.h"
#include "core/runtime/executor/device_executor.h"
#include "core/runtime/executor/device_kinds.h"
#include "core/runtime/executor/device_threads.h"
#include "core/runtime/executor/sharded_place.h"

namespace tessera {
namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0); }

struct Program {
  StepPlan plan;
  std::vector<SavedValue> saved;
  // The program that makes the copies of parameters that this one keeps (keep_copies()).
  std::optional<int> copies;
  std::vector<std::shared_ptr<const Graph>> graphs;  // One per device; the first is the plan's.
  std::vector<Type> inputs, outputs;                 // Global, as the plan's.
};

// How long an error waits for the other devices to return.
std::chrono::milliseconds grace(const Communicator* communicator) {
  constexpr auto kMost = std::chrono::milliseconds(5000);
  return communicator != nullptr ? std::min(kMost, communicator->timeout()) : kMost;
}

size_t index_of(const std::vector<Placement>& placements, std::string_view name,
                std::string_view what) {
  std::vector<std::string> names;
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].name == name) return i;
    names.push_back(placements[i].name);
  }
  fail("the program has no {} '{}'{}", what, name, did_you_mean(name, names));
}

bool writes_parameters(const Program& program) {
  const Graph& graph = *program.plan.graph;
  return std::ranges::any_of(graph.outputs(), [&](const GraphOutput& each) {
    return each.is_update && graph.find_input(each.name)->kind == InputKind::kParameter;
  });
}

}  // namespace

struct Executor::Impl {
  Impl(const std::vector<Device*>& devices, Communicator* joined, bool plans)
      : communicator(joined),
        planning(plans),
        threads(static_cast<int64_t>(devices.size()), grace(joined)) {
    const int64_t first = joined != nullptr ? joined->first_device() : 0;
    for (Device* device : devices) {
      parts.push_back(std::make_unique<DeviceExecutor>(
          *device, first + static_cast<int64_t>(parts.size()), joined));
    }
  }
  // Collectives read the arenas of other devices: none may be running when the first is released.
  ~Impl() {
    for (const auto& part : parts) part->end_streams();
  }

  const Program& program(int number) const { return programs[static_cast<size_t>(number)]; }

  void require_no_run() const { CHECK(under_way == 0, "{} runs are under way", under_way); }
  ShardedPlace place(const Placement& placement, const Type& global) const {
    CHECK(allocated, "allocate() comes before data");
    return {placement.name, global, mesh, placement.offset};
  }
  // The place in the arena of each device of an f32 output that all of them hold whole.
  ResultPlace result_place(const Program& program, std::string_view name) const {
    const size_t index = index_of(program.plan.outputs, name, "output");
    const Type& type = program.outputs[index];
    const bool is_split =
        std::ranges::any_of(type.axes, [](const Axis& axis) { return !axis.split.empty(); });
    if (is_split || type.dtype != DType::kF32)
      fail("{} is {}, expected f32 with no split axis", name, type.text_sized());
    return {program.plan.outputs[index].offset, type.elements()};
  }
  ShardedPlace state(std::string_view name) const {
    require_no_run();
    const size_t index = index_of(persistent, name, "parameter or state");
    return place(persistent[index], buffers[index].type);
  }

  // The devices this process drives, and the mesh the programs are for.
  void check_mesh(const Mesh& wanted) {
    const int64_t devices = communicator != nullptr ? communicator->num_devices() : 1;
    if (!planning && wanted.num_devices() != devices) {
      fail("the mesh ({}) has {} devices, but the run has {}; set ici_mesh_shape or --devices",
           wanted.text(), wanted.num_devices(), devices);
    }
    CHECK(programs.empty() || wanted.axes() == mesh.axes(), "programs for two meshes");
    mesh = wanted;
  }

  Communication usual_communication() const {
    bool beside = communicator != nullptr && communicator->num_processes() > 1;
    if (mesh.num_devices() > 1 && (communicator != nullptr || planning))
      beside = beside || find_device_kind(parts[0]->device().kind()).overlaps;
    for (const MeshAxis& axis : mesh.axes()) beside = beside || (planning && axis.dcn > 1);
    return beside ? Communication::kOverlapped : Communication::kInline;
  }

  // Bytes of one arena for all programs so far.
  int64_t planned_bytes() const {
    int64_t above = 0;
    for (const Program& program : programs)
      above = std::max(above, program.plan.arena_bytes - program.plan.persistent_bytes);
    return persistent_bytes + above;
  }

  // Moves offsets above the persistent arrays up if later programs have added to those.
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

  // work(part) for each device, on its thread. After an error a thread that hangs may use its copy
  // of `work` when this function has returned.
  void on_all(std::function<void(DeviceExecutor&, size_t)> work) {
    threads.run([this, work = std::move(work)](
                    int64_t i) { work(*parts[static_cast<size_t>(i)], static_cast<size_t>(i)); },
                [this](const std::string& reason) {
                  if (communicator != nullptr) communicator->stop(reason);
                });
  }

  void add_persistent(const Program& program, const Graph& traced) {
    std::unordered_set<std::string> known;
    for (const Placement& each : placed()) known.insert(each.name);
    for (const Placement& input : program.plan.inputs) {
      const bool stays = input.kind == InputKind::kParameter || input.kind == InputKind::kState;
      if (!stays || !known.insert(input.name).second) continue;
      if (const GraphInput* const own = traced.find_input(input.name)) {
        persistent.push_back(input);
        buffers.push_back({input.name, input.kind, traced.type(own->value)});
      } else {
        copies.push_back(input);
      }
    }
    persistent_bytes = program.plan.persistent_bytes;
  }

  // All that keeps its place.
  std::vector<Placement> placed() const {
    std::vector<Placement> all = persistent;
    all.insert(all.end(), copies.begin(), copies.end());
    return all;
  }

  // Adds the program that makes the copies of the last program, if it has any.
  void add_copies() {
    std::optional<Graph> graph = graph_of_copies(*programs.back().plan.graph);
    if (!graph) return;
    programs.back().copies = static_cast<int>(programs.size());
    Program& program = programs.emplace_back();
    program.plan = plan_memory(std::move(*graph), parts[0]->facts(), placed());
    program.graphs.assign(parts.size(), program.plan.graph);
  }

  // Whether the copies of a program must be made before it runs. After its run they are current,
  // and those of other programs are not if it has written parameters.
  bool must_make_copies(const Program& program) {
    const bool make = program.copies && current_copies != program.copies;
    if (program.copies || (current_copies && writes_parameters(program)))
      current_copies = program.copies;
    return make;
  }

  // The results are copied from the first device; each device has the same.
  void start(int program, std::span<const ResultPlace> results) {
    CHECK(allocated, "allocate() comes before a run");
    const std::optional<int> own_copies = this->program(program).copies;
    const bool make_copies = must_make_copies(this->program(program));
    if (make_copies) require_no_run();
    const auto timing =
        observer ? DeviceExecutor::Timing::kTimed : DeviceExecutor::Timing::kUntimed;
    const auto start_on = [this, program, own_copies, make_copies, timing,
                           places = std::vector<ResultPlace>(results.begin(), results.end())](
                              DeviceExecutor& part, size_t i) {
      if (make_copies) {
        part.start(*own_copies, DeviceExecutor::Timing::kUntimed, nullptr);
        part.finish(nullptr);
      }
      part.start(program, timing, guard, i == 0 ? places : std::span<const ResultPlace>());
    };
    on_each(start_on);
    ++under_way;
  }
  std::span<const float> finish() {
    CHECK(under_way > 0, "no run is under way");
    const size_t left = std::exchange(under_way, 0) - 1;  // None, if this one has failed.
    const auto finish_on = [this](DeviceExecutor& part, size_t i) {
      const std::span<const float> own = part.finish(observer);
      if (i == 0) finished = own;
    };
    on_each(finish_on);
    under_way = left;
    return finished;
  }
  // As on_all, but on this thread if there is one device, so that a run allocates nothing. After an
  // error of several devices nothing can be finished.
  template <typename Work>
  void on_each(const Work& work) try {
    if (parts.size() == 1 && communicator == nullptr) return work(*parts[0], 0);
    on_all(work);
  } catch (...) {
    if (communicator != nullptr) under_way = 0;
    throw;
  }

  Communicator* communicator;
  bool planning;
  Mesh mesh;
  std::vector<Program> programs;
  DeviceParts parts;
  std::vector<Placement> persistent;
  std::vector<Buffer> buffers;    // As `persistent`.
  std::vector<Placement> copies;  // Of parameters in another dtype; nobody else sees them.
  // The Program::copies whose copies have the values of the parameters.
  std::optional<int> current_copies;
  int64_t persistent_bytes = 0;
  int64_t bytes = 0;
  bool allocated = false;
  size_t under_way = 0;             // Runs.
  std::span<const float> finished;  // Scalars of the last run that was finished.
  LaunchObserver observer;
  WriteGuard guard;
  DeviceThreads threads;
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::Executor(Device& device)
    : impl_(std::make_unique<Impl>(std::vector<Device*>{&device}, nullptr, false)) {}
Executor::Executor(const std::vector<Device*>& devices, Communicator& communicator)
    : impl_(std::make_unique<Impl>(devices, &communicator, false)) {
  CHECK(static_cast<int64_t>(impl_->parts.size()) == communicator.local_devices());
}
Executor Executor::for_planning(Device& device) {
  return Executor(std::make_unique<Impl>(std::vector<Device*>{&device}, nullptr, true));
}
Executor::Executor(Executor&&) noexcept = default;
Executor::~Executor() {
  // After a failure, a hanging thread may still use these objects, or a message may still arrive in
  // the arena, so they are never destroyed.
  const bool in_use =
      impl_ && (impl_->threads.is_lost() ||
                (impl_->communicator != nullptr && impl_->communicator->is_stopped() &&
                 impl_->communicator->num_processes() > 1));
  if (in_use) keep_until_exit(std::move(impl_));
}

int Executor::add_program(const Graph& traced, const CompileOptions& options) {
  Impl& impl = *impl_;
  CHECK(!impl.allocated, "programs are added before allocate()");
  impl.check_mesh(options.mesh);
  Program program;
  const Graph shared = compile_shared(traced, options, program.saved);
  const Device& kind = impl.parts[0]->device();
  // The first device's graph is compiled by the caller's thread, whose errors have context.
  Graph first = compile_for_device(shared, options, impl.parts[0]->number(), Stages::kShown, kind);
  program.plan = plan_memory(std::move(first), impl.parts[0]->facts(), impl.placed(),
                             options.communication.value_or(impl.usual_communication()));
  program.graphs.resize(impl.parts.size());
  program.graphs[0] = program.plan.graph;
  if (impl.parts.size() > 1) {
    impl.on_all([&](const DeviceExecutor& part, size_t i) {
      if (i == 0) return;
      program.graphs[i] = std::make_shared<const Graph>(
          compile_for_device(shared, options, part.number(), Stages::kSilent, kind));
    });
  }
  for (const Placement& input : program.plan.inputs) {
    const GraphInput* const own = traced.find_input(input.name);
    program.inputs.push_back(own != nullptr ? traced.type(own->value) : input.type);
  }
  for (const Placement& output : program.plan.outputs)
    program.outputs.push_back(traced.type(traced.find_output(output.name)->value));
  impl.add_persistent(program, traced);
  impl.programs.push_back(std::move(program));
  const auto number = static_cast<int>(impl.programs.size()) - 1;
  impl.add_copies();
  impl.bytes = impl.planned_bytes();
  return number;
}

void Executor::allocate() {
  Impl& impl = *impl_;
  CHECK(!impl.allocated, "allocate() is called once");
  CHECK(!impl.planning, "an executor for planning has no devices");
  int64_t peak = 0;
  for (Program& program : impl.programs) {
    impl.move_up(program.plan);
    peak = std::max(peak, program.plan.arena_bytes);
  }
  CHECK(peak == impl.bytes, "{} bytes are planned, {} would be allocated", peak, impl.bytes);
  int64_t available = 0;
  bool fits = true;
  for (const auto& part : impl.parts) {
    const int64_t here = part->device().available_bytes();
    fits = fits && impl.bytes <= here;
    available += here;
  }
  for (size_t i = 0; fits && i < impl.parts.size(); ++i) fits = impl.parts[i]->allocate(impl.bytes);
  if (!fits) {
    const std::string each =
        impl.parts.size() == 1
            ? ""
            : fmt::format(" on each of {} devices of this process", impl.parts.size());
    fail(
        "the plan needs {:.2f} GiB ({} bytes){}, of which {:.2f} GiB parameters and state, but "
        "{:.2f} GiB are available; lower the batch or the model, or save less for the backward "
        "pass (remat policy)",
        gib(impl.bytes), impl.bytes, each, gib(impl.persistent_bytes), gib(available));
  }
  impl.on_all([&](DeviceExecutor& part, size_t i) {
    for (const Program& program : impl.programs) part.add_program(program.plan, *program.graphs[i]);
  });
  impl.allocated = true;
}

int64_t Executor::arena_bytes() const { return impl_->bytes; }
const StepPlan& Executor::plan(int program) const { return impl_->program(program).plan; }
const std::vector<SavedValue>& Executor::saved_values(int program) const {
  return impl_->program(program).saved;
}
const std::vector<Buffer>& Executor::persistent() const { return impl_->buffers; }
int64_t Executor::first_device() const { return impl_->parts[0]->number(); }
int64_t Executor::local_devices() const { return static_cast<int64_t>(impl_->parts.size()); }

std::vector<Shard> Executor::shards(std::string_view name) {
  impl_->current_copies.reset();  // The caller may write to the memory.
  return shards_to_read(name);
}

std::vector<Shard> Executor::shards_to_read(std::string_view name) const {
  const ShardedPlace place = impl_->state(name);
  std::vector<Shard> shards;
  for (const auto& part : impl_->parts) {
    const Region block = shard_block(place.type, place.mesh, part->number());
    const int64_t bytes = block.elements() * dtype_bytes(place.type.dtype);
    shards.push_back({.device = part->number(),
                      .block = block,
                      .owned = owns_block(place.type, place.mesh, part->number()),
                      .memory = part->buffer(place.offset, bytes)});
  }
  return shards;
}

void Executor::write_state(std::string_view name, std::span<const std::byte> bytes) {
  if (impl_->guard)
    for (const Shard& shard : shards_to_read(name)) impl_->guard(shard.memory);
  impl_->current_copies.reset();
  write_whole(impl_->state(name), impl_->parts, bytes);
  for (const auto& part : impl_->parts) part->synchronize();
}

void Executor::read_state(std::string_view name, std::span<std::byte> bytes) const {
  read_whole(impl_->state(name), impl_->parts, bytes);
}

std::vector<RowRange> Executor::input_rows(int program, std::string_view name) const {
  const Program& it = impl_->program(program);
  const Type& type = it.inputs[index_of(it.plan.inputs, name, "input")];
  if (type.rank() == 0) return {};
  return rows_of(type, impl_->mesh, first_device(), local_devices());
}

void Executor::write_input(int program, std::string_view name, std::span<const std::byte> bytes) {
  const Program& it = impl_->program(program);
  const size_t index = index_of(it.plan.inputs, name, "input");
  write_rows(impl_->place(it.plan.inputs[index], it.inputs[index]), impl_->parts, bytes);
}

void Executor::run(int program) {
  impl_->require_no_run();
  impl_->start(program, {});
  impl_->finish();
}

void Executor::start(int program, std::span<const std::string> outputs) {
  std::vector<ResultPlace> places;
  for (const std::string& name : outputs)
    places.push_back(impl_->result_place(impl_->program(program), name));
  impl_->start(program, places);
}

std::vector<float> Executor::finish() {
  const std::span<const float> results = impl_->finish();
  std::vector<float> values;
  for (const float value : results) values.push_back(static_cast<float>(plain_nan(value)));
  return values;
}

size_t Executor::under_way() const { return impl_->under_way; }
size_t Executor::most_under_way() const {
  return impl_->parts[0]->device().is_asynchronous() ? kMostRunsUnderWay : 1;
}

void Executor::read_output(int program, std::string_view name, std::span<std::byte> bytes) const {
  const Program& it = impl_->program(program);
  const size_t index = index_of(it.plan.outputs, name, "output");
  impl_->require_no_run();
  read_whole(impl_->place(it.plan.outputs[index], it.outputs[index]), impl_->parts, bytes);
}

float Executor::read_scalar(int program, std::string_view name) const {
  float value = 0.0f;
  read_output(program, name, std::as_writable_bytes(std::span(&value, 1)));
  return static_cast<float>(plain_nan(value));
}

void Executor::observe(LaunchObserver observer) { impl_->observer = std::move(observer); }
void Executor::guard_writes(WriteGuard guard) { impl_->guard = std::move(guard); }

}  // namespace tessera
