// SPDX-License-Identifier: Apache-2.0
// Compiles step programs and runs them on the devices of this process, with one thread per device.
// Programs (train, eval) share one arena per device: parameters and state have one place for all
// programs, and their temporaries overlap. The stages of a pipeline have different graphs and
// arenas, and may lack some inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/devices/device.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/type.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/compile.h"
#include "core/runtime/executor/launch_trace.h"
#include "core/runtime/executor/program_arrays.h"

namespace tessera {

// A contiguous part of a parameter or state on a device.
struct Shard {
  int64_t device = 0;  // Its number in the mesh.
  Region block;        // Place of the shard in the global array.
  bool owned = false;  // Whether it is the first device of those that hold this block.
  DeviceBuffer memory;
};

// The plan and the graph that the devices of a stage run.
struct StagePlan {
  int64_t stage = 0;
  const StepProgram* plan = nullptr;
};

class Executor {
 public:
  // Makes an executor for a run of one device.
  explicit Executor(Device& device);
  // Makes an executor for a run of several devices: `devices` are those of this process, in the
  // order of their numbers. They and the communicator must outlive the executor.
  Executor(const std::vector<Device*>& devices, Communicator& communicator);
  // Compiles and plans for the first device (of each stage) of any mesh, without its devices;
  // allocate() must not be called. `device` supplies the needs of its kernels.
  static Executor for_planning(Device& device);
  ~Executor();
  Executor(Executor&&) noexcept;

  // Compiles a traced graph and returns the program's number. All programs are added before
  // allocate(), for one mesh; those of a pipeline come first.
  int add_program(Graph traced, const CompileOptions& options);
  // Adds a program from the compiled graphs of the devices.
  int add_program(const Graph& traced, const CompileOptions& options,
                  const GraphOfDevice& graph_of);
  // Allocates the arenas, zeroed. Error with the planned and the available bytes if they do not
  // fit.
  void allocate();
  // Returns the bytes that the programs so far need on each device of the stage that needs most;
  // after allocate(), the arena's size.
  int64_t arena_bytes() const;
  // Returns the plan of the first device; those of others of its stage differ only in attributes of
  // nodes. Offsets are final after allocate().
  const StepProgram& plan(int program) const;
  // Returns the plans of this process's stages; after for_planning(), of all stages.
  std::vector<StagePlan> stage_plans(int program) const;
  // Return the arrays of the traced graph, in its order. An input may be absent on some stages; an
  // output is on all.
  const std::vector<ProgramArray>& inputs(int program) const;
  const std::vector<ProgramArray>& outputs(int program) const;
  // Returns the values of a program's forward pass that are kept for its backward pass.
  const std::vector<SavedValue>& saved_values(int program) const;

  int64_t first_device() const;
  int64_t local_devices() const;

  // Returns the parameters and state of all programs; equal in all processes.
  const std::vector<Buffer>& persistent() const;
  // Return the parts that this process's devices hold, in the order of the devices: one for each
  // block (shard_blocks()), none for a device whose stage lacks the array. Call shards() before
  // every write to their memory: it marks copies of parameters as outdated. shards_to_read() is for
  // reads.
  std::vector<Shard> shards(std::string_view name);
  std::vector<Shard> shards_to_read(std::string_view name) const;
  // Copy whole arrays: each device takes its part. Reading is an Error unless this process's
  // devices hold all of it.
  void write_state(std::string_view name, std::span<const std::byte> bytes);
  void read_state(std::string_view name, std::span<std::byte> bytes) const;

  // Batch inputs and outputs are valid until another run begins. The bytes of an input are this
  // process's rows (input_rows, one range after the other) with all other axes whole, or the value
  // of a scalar; devices whose stage lacks the input do not get it. An output is read whole, as by
  // read_state.
  std::vector<RowRange> input_rows(int program, std::string_view name) const;
  void write_input(int program, std::string_view name, std::span<const std::byte> bytes);
  // Runs a program on all devices of this process. The first error of any device stops the others
  // (Communicator::stop) and is thrown; nothing can be run after that.
  void run(int program);
  // A run in two parts, so that the host need not wait for the devices between two runs: start()
  // returns when it has enqueued the run and copies of these floats, which are not split;
  // finish() when the oldest run that was started is done, with their elements, one output after
  // the other. Between the two, only write_input and start() may be called.
  void start(int program, std::span<const std::string> outputs);
  std::vector<double> finish();
  // Returns the number of runs started and not finished. It is 0 after an error, unless the error
  // may belong to a run that was started before, which finish() then throws.
  size_t under_way() const;
  // Returns the most runs that may be under way; 1 if the devices work on the host's own thread.
  size_t most_under_way() const;
  void read_output(int program, std::string_view name, std::span<std::byte> bytes) const;
  // Read a whole output of f32 or f64, what this process holds of it (the rest stays as it is), and
  // one that is a scalar.
  std::vector<double> read_floats(int program, std::string_view name) const;
  void read_held_floats(int program, std::string_view name, std::span<float> to) const;
  float read_scalar(int program, std::string_view name) const;

  // Sets a function that is called for each launch of a run. All processes set it for the same
  // runs: observed launches are not replayed from a CUDA graph, and NCCL expects of all ranks that
  // a collective is in a graph, or of none.
  void observe(LaunchObserver observer);
  // Sets a function that is called before a launch of any program, or write_state, writes to a
  // parameter or state.
  void guard_writes(WriteGuard guard);

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
