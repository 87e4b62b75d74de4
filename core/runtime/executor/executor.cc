// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/executor.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/devices/reference/array.h"
#include "core/runtime/executor/device_executor.h"
#include "core/runtime/executor/device_kinds.h"
#include "core/runtime/executor/device_threads.h"
#include "core/runtime/executor/planned_programs.h"
#include "core/runtime/executor/sharded_place.h"

namespace tessera {
namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0); }

// Returns how long an error waits for the other devices to return.
std::chrono::milliseconds grace(const Communicator* communicator) {
  constexpr auto kMost = std::chrono::milliseconds(5000);
  return communicator != nullptr ? std::min(kMost, communicator->timeout()) : kMost;
}

// Returns the index of a Buffer or ProgramArray.
template <typename Array>
size_t index_of(const std::vector<Array>& arrays, std::string_view name, std::string_view what) {
  std::vector<std::string> names;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].name == name) return i;
    names.push_back(arrays[i].name);
  }
  fail("the program has no {} '{}'{}", what, name, did_you_mean(name, names));
}

}  // namespace

struct Executor::Impl {
  Impl(const std::vector<Device*>& devices, Communicator* joined, bool plans)
      : communicator(joined),
        planning(plans),
        programs(parts, plans, [this](PlannedPrograms::Work work) { on_all(std::move(work)); }),
        threads(std::ssize(devices), grace(joined)) {
    const int64_t first = joined != nullptr ? joined->first_device() : 0;
    for (Device* device : devices)
      parts.push_back(std::make_unique<DeviceExecutor>(*device, first + std::ssize(parts), joined));
  }
  // No collective may run when the first arena is released: collectives read other devices' arenas.
  ~Impl() {
    for (const auto& part : parts) part->end_streams();
  }

  const PlannedProgram& program(int number) const { return programs.program(number); }

  void require_no_run() const { CHECK(under_way == 0, "{} runs are under way", under_way); }
  ShardedPlace place(const PlacedArrays& placed, size_t index) const {
    CHECK(allocated, "allocate() comes before data");
    const ProgramArray& array = placed.arrays[index];
    return {array.name, array.type, programs.mesh(), placed.offsets[index]};
  }
  // Returns the place, in the first device's arena, of an f32 or f64 output that is not split.
  ResultPlace result_place(const PlannedProgram& program, std::string_view name) const {
    const size_t index = index_of(program.outputs.arrays, name, "output");
    const Type& type = program.outputs.arrays[index].type;
    const bool is_split =
        std::ranges::any_of(type.axes, [](const Axis& axis) { return !axis.split.empty(); });
    if (is_split || (type.dtype != DType::kF32 && type.dtype != DType::kF64))
      fail("{} is {}, expected f32 or f64 with no split axis", name, type.text_sized());
    CHECK(allocated, "allocate() comes before data");
    const auto& offset = program.outputs.offsets[index][0];
    CHECK(offset.has_value(), "{}: the first device does not make it", name);
    return {*offset, type.elements(), type.dtype};
  }
  const Type& output_type(int number, std::string_view name) const;
  size_t buffer(std::string_view name) const {
    return index_of(programs.buffers(), name, "parameter or state");
  }
  ShardedPlace state(size_t buffer) const {
    require_no_run();
    CHECK(allocated, "allocate() comes before data");
    const Buffer& it = programs.buffers()[buffer];
    return {it.name, it.type, programs.mesh(), programs.buffer_offsets(buffer)};
  }
  ShardedPlace state(std::string_view name) const { return state(buffer(name)); }

  // Checks that this run has the devices of the programs' mesh.
  void check_mesh(const Mesh& wanted) {
    const int64_t devices = communicator != nullptr ? communicator->num_devices() : 1;
    if (!planning && wanted.num_devices() != devices)
      fail("the mesh ({}) has {} devices, but the run has {}; set ici_mesh_shape or --devices",
           wanted.text(), wanted.num_devices(), devices);
    programs.set_mesh(wanted);
  }

  // Overlaps where transfers are slow: a pipeline's stage would otherwise wait for each one. A mesh
  // of several slices has slow links, wherever its devices are, so that a run allocates what its
  // plan says.
  Communication usual_communication(const CompileOptions& options) const {
    const Mesh& mesh = programs.mesh();
    bool beside =
        options.pipeline || (communicator != nullptr && communicator->num_processes() > 1);
    if (mesh.num_devices() > 1 && (communicator != nullptr || planning))
      beside = beside || find_device_kind(parts[0]->device().kind()).overlaps;
    for (const MeshAxis& axis : mesh.axes()) beside = beside || axis.dcn > 1;
    return beside ? Communication::kOverlapped : Communication::kInline;
  }

  // Calls work(part) for each device, on its thread. After an error, a thread that hangs may still
  // use its copy of `work` when this function has returned.
  void on_all(PlannedPrograms::Work work) {
    threads.run([this, work = std::move(work)](
                    int64_t i) { work(*parts[static_cast<size_t>(i)], static_cast<size_t>(i)); },
                [this](const std::string& reason) {
                  if (communicator != nullptr) communicator->stop(reason);
                });
  }

  void allocate_arenas();

  int add_program(const Graph& traced, const CompileOptions& options, const GraphOfDevice& graph_of,
                  std::vector<SavedValue> saved) {
    CHECK(!allocated, "programs are added before allocate()");
    return programs.add(traced, graph_of,
                        options.communication.value_or(usual_communication(options)),
                        options.launch_seconds, std::move(saved));
  }

  // Returns whether the copies of a program must be made before it runs. After its run they are
  // current, and those of other programs are not if it has written parameters.
  bool must_make_copies(const PlannedProgram& program) {
    const bool make = program.copies && current_copies != program.copies;
    if (program.copies || (current_copies && program.writes_parameters))
      current_copies = program.copies;
    return make;
  }

  // Starts a run. Results are copied from the first device; each device has the same.
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
  std::span<const double> finish() {
    CHECK(under_way > 0, "no run is under way");
    const size_t left = std::exchange(under_way, 0) - 1;  // None remains if this run has failed.
    const auto finish_on = [this](DeviceExecutor& part, size_t i) {
      const std::span<const double> own = part.finish(observer);
      if (i == 0) finished = own;
    };
    on_each(finish_on);
    under_way = left;
    return finished;
  }
  // Like on_all, but on this thread if there is one device, so that a run allocates nothing. After
  // an error of several devices nothing can be finished.
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
  DeviceParts parts;
  PlannedPrograms programs;
  // Index of the program whose copies (PlannedProgram::copies) have the values of the parameters.
  std::optional<int> current_copies;
  bool allocated = false;
  size_t under_way = 0;              // Number of runs in progress.
  std::span<const double> finished;  // Scalars of the last finished run.
  LaunchObserver observer;
  WriteGuard guard;
  DeviceThreads threads;
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::Executor(Device& device)
    : impl_(std::make_unique<Impl>(std::vector<Device*>{&device}, nullptr, false)) {}
Executor::Executor(const std::vector<Device*>& devices, Communicator& communicator)
    : impl_(std::make_unique<Impl>(devices, &communicator, false)) {
  CHECK(std::ssize(impl_->parts) == communicator.local_devices());
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

int Executor::add_program(Graph traced, const CompileOptions& options) {
  impl_->check_mesh(options.mesh);
  std::vector<SavedValue> saved;
  const Graph shared = compile_shared(std::move(traced), options, saved);
  const Device& kind = impl_->parts[0]->device();
  const StageHomes held = impl_->programs.homes();
  return impl_->add_program(
      options.numerics == Numerics::kF64 ? in_f64(shared) : shared, options,
      [&](int64_t number, Stages stages) {
        return compile_for_device(shared, options, number, stages, kind, held);
      },
      std::move(saved));
}

int Executor::add_program(const Graph& traced, const CompileOptions& options,
                          const GraphOfDevice& graph_of) {
  impl_->check_mesh(options.mesh);
  return impl_->add_program(traced, options, graph_of, {});
}

// Allocates the arenas; Error with the sizes if they do not fit.
void Executor::Impl::allocate_arenas() {
  const auto bytes_of = [&](size_t part) {
    if (programs.arenas().empty()) return int64_t{0};  // There are no programs.
    return programs.arenas()[programs.arena_of(part)].bytes;
  };
  int64_t available = 0;
  std::optional<size_t> too_large;  // The first that does not fit.
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t here = parts[i]->device().available_bytes();
    if (!too_large && bytes_of(i) > here) too_large = i;
    available += here;
  }
  for (size_t i = 0; !too_large && i < parts.size(); ++i)
    if (!parts[i]->allocate(bytes_of(i))) too_large = i;
  if (!too_large) return;
  const StageArena& arena = programs.arenas()[programs.arena_of(*too_large)];
  std::string each;
  if (parts.size() > 1) each = fmt::format(" on each of {} devices of this process", parts.size());
  if (programs.arenas().size() > 1)
    each = fmt::format(" on each device of stage {}, of {} devices of this process", arena.stage,
                       parts.size());
  fail(
      "the plan needs {:.2f} GiB ({} bytes){}, of which {:.2f} GiB parameters and state, but "
      "{:.2f} GiB are available; lower the batch or the model, or save less for the backward "
      "pass (remat policy)",
      gib(arena.bytes), arena.bytes, each, gib(arena.persistent_bytes), gib(available));
}

void Executor::allocate() {
  Impl& impl = *impl_;
  CHECK(!impl.allocated, "allocate() is called once");
  CHECK(!impl.planning, "an executor for planning has no devices");
  impl.programs.place();
  const auto add_all = [&](auto add) {
    impl.on_all([&](DeviceExecutor& part, size_t i) {
      for (const PlannedProgram& program : impl.programs.programs())
        (part.*add)(program.plans[impl.programs.arena_of(i)], *program.graphs[i]);
    });
  };
  // A library that connects devices allocates buffers of its own, which an arena must leave room
  // for.
  add_all(&DeviceExecutor::prepare_collectives);
  impl.allocate_arenas();
  add_all(&DeviceExecutor::add_program);
  impl.allocated = true;
}

int64_t Executor::arena_bytes() const {
  int64_t most = 0;
  for (const StageArena& arena : impl_->programs.arenas()) most = std::max(most, arena.bytes);
  return most;
}
const StepProgram& Executor::plan(int program) const { return impl_->program(program).plans[0]; }
std::vector<StagePlan> Executor::stage_plans(int program) const {
  std::vector<StagePlan> plans;
  for (size_t arena = 0; arena < impl_->programs.arenas().size(); ++arena)
    plans.push_back({impl_->programs.arenas()[arena].stage, &impl_->program(program).plans[arena]});
  return plans;
}
const std::vector<ProgramArray>& Executor::inputs(int program) const {
  return impl_->program(program).inputs.arrays;
}
const std::vector<ProgramArray>& Executor::outputs(int program) const {
  return impl_->program(program).outputs.arrays;
}
const std::vector<SavedValue>& Executor::saved_values(int program) const {
  return impl_->program(program).saved;
}
const std::vector<Buffer>& Executor::persistent() const { return impl_->programs.buffers(); }
int64_t Executor::first_device() const { return impl_->parts[0]->number(); }
int64_t Executor::local_devices() const { return std::ssize(impl_->parts); }

std::vector<Shard> Executor::shards(std::string_view name) {
  impl_->current_copies.reset();  // The caller may write to the memory.
  return shards_to_read(name);
}

std::vector<Shard> Executor::shards_to_read(std::string_view name) const {
  const size_t buffer = impl_->buffer(name);
  const std::vector<int64_t>& stages = impl_->programs.buffers()[buffer].stages;
  const ShardedPlace place = impl_->state(buffer);
  std::vector<Shard> shards;
  for (size_t i = 0; i < impl_->parts.size(); ++i) {
    const auto& offset = place.offsets[i];
    if (!offset) continue;
    DeviceExecutor& part = *impl_->parts[i];
    for (const ShardBlock& block : shard_blocks(place.type, place.mesh, part.number())) {
      const int64_t bytes = block.global.elements() * dtype_bytes(place.type.dtype);
      shards.push_back({.device = part.number(),
                        .block = block.global,
                        .owned = owns_block(place.type, place.mesh, part.number(), stages),
                        .memory = part.buffer(*offset + local_begin(place, block), bytes)});
    }
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
  const std::vector<ProgramArray>& inputs = this->inputs(program);
  const Type& type = inputs[index_of(inputs, name, "input")].type;
  if (type.rank() == 0) return {};
  return rows_of(type, impl_->programs.mesh(), first_device(), local_devices());
}

void Executor::write_input(int program, std::string_view name, std::span<const std::byte> bytes) {
  const PlacedArrays& inputs = impl_->program(program).inputs;
  write_rows(impl_->place(inputs, index_of(inputs.arrays, name, "input")), impl_->parts, bytes);
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

std::vector<double> Executor::finish() {
  std::vector<double> values;
  for (const double value : impl_->finish()) values.push_back(plain_nan(value));
  return values;
}

size_t Executor::under_way() const { return impl_->under_way; }
size_t Executor::most_under_way() const {
  return impl_->parts[0]->device().is_asynchronous() ? kMostRunsUnderWay : 1;
}

void Executor::read_output(int program, std::string_view name, std::span<std::byte> bytes) const {
  const PlacedArrays& outputs = impl_->program(program).outputs;
  const size_t index = index_of(outputs.arrays, name, "output");
  impl_->require_no_run();
  read_whole(impl_->place(outputs, index), impl_->parts, bytes);
}

const Type& Executor::Impl::output_type(int number, std::string_view name) const {
  const std::vector<ProgramArray>& outputs = program(number).outputs.arrays;
  return outputs[index_of(outputs, name, "output")].type;
}

void Executor::read_held_floats(int program, std::string_view name, std::span<float> to) const {
  const PlacedArrays& outputs = impl_->program(program).outputs;
  const size_t index = index_of(outputs.arrays, name, "output");
  const auto read = [&](std::span<std::byte> bytes) {
    read_held(impl_->place(outputs, index), impl_->parts, bytes);
  };
  impl_->require_no_run();
  const Type& type = outputs.arrays[index].type;
  if (type.dtype == DType::kF32) return read(std::as_writable_bytes(to));
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  read(bytes);
  std::ranges::transform(decode_values(type, bytes.data()), to.begin(),
                         [](double value) { return static_cast<float>(value); });
}

std::vector<double> Executor::read_floats(int program, std::string_view name) const {
  const Type& type = impl_->output_type(program, name);
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  read_output(program, name, bytes);
  return decode_values(type, bytes.data());
}

float Executor::read_scalar(int program, std::string_view name) const {
  return static_cast<float>(plain_nan(read_floats(program, name).at(0)));
}

void Executor::observe(LaunchObserver observer) { impl_->observer = std::move(observer); }
void Executor::guard_writes(WriteGuard guard) { impl_->guard = std::move(guard); }

}  // namespace tessera
