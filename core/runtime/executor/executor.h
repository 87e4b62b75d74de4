// SPDX-License-Identifier: Apache-2.0
// Runs step programs on the devices of this process, each on a thread of its own. Programs (train,
// eval) share one arena a device: parameters and state by name, temporaries by overlap.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/graph.h"
#include "core/graph/shard.h"
#include "core/passes/step_plan.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/compile.h"
#include "core/runtime/executor/launch_observer.h"

namespace tessera {

// The arenas' view of a parameter or state.
struct Buffer {
  std::string name;
  InputKind kind = InputKind::kState;
  Type type;   // Global.
  Type local;  // What each device holds.
};

// A device's part of a parameter or state.
struct Shard {
  int64_t device = 0;          // Its number in the mesh.
  Region block;                // Of the global array.
  bool owned = false;          // The first of those that hold the same block.
  std::span<std::byte> bytes;  // In the arena, which the host can see (CPU).
};

class Executor {
 public:
  // A run of one device.
  explicit Executor(Device& device);
  // All devices of this process, in the order of their numbers, of the run that the communicator
  // joins. Both must outlive the executor.
  Executor(std::vector<Device*> devices, Communicator& communicator);
  // Compiles and plans for the first device of any mesh, in a run that has none: nothing may be
  // allocated. `device` tells what its kernels need.
  static Executor for_planning(Device& device);
  ~Executor();
  Executor(Executor&&) noexcept;

  // Compiles a traced graph; returns the program's number. All programs are added before
  // `allocate`, for one mesh; the first to name a state decides where it lies.
  int add_program(const Graph& traced, const CompileOptions& options);
  // Allocates the arenas, zeroed. Error with the plan's bytes and what is there if they do not fit.
  void allocate();
  // What the programs so far need on each device; what is allocated, once it is.
  int64_t arena_bytes() const;
  // Of the first device; those of others differ in attributes of nodes alone. Offsets are final
  // once the arena is allocated.
  const StepPlan& plan(int program) const;
  // What the backward pass of a program keeps of its forward pass.
  const std::vector<SavedValue>& saved_values(int program) const;

  int64_t first_device() const;
  int64_t local_devices() const;

  // Parameters and state of all programs.
  const std::vector<Buffer>& persistent() const;
  // The parts that this process's devices hold, in their order.
  std::vector<Shard> shards(std::string_view name);
  // Of whole arrays: each device takes its part; reading needs all parts to be in this process.
  void write_state(std::string_view name, std::span<const std::byte> bytes);
  void read_state(std::string_view name, std::span<std::byte> bytes) const;
  // Direct access to a persistent buffer of a single device whose memory the host can see (CPU).
  std::span<std::byte> host_view(std::string_view name);

  // Batch inputs and outputs hold until another program runs: write before, read after. The bytes
  // of an input are this process's rows of it (input_rows, one range after the other), all other
  // axes whole; of a scalar, which has no rows, its value. An output is read whole, so all its
  // parts must be here.
  std::vector<RowRange> input_rows(int program, std::string_view name) const;
  void write_input(int program, std::string_view name, std::span<const std::byte> bytes);
  // Runs all devices of this process. The first error of any ends the others' (Communicator::stop)
  // and is thrown; nothing can be run thereafter.
  void run(int program);
  void read_output(int program, std::string_view name, std::span<std::byte> bytes) const;
  float read_scalar(int program, std::string_view name) const;  // Of an f32 scalar output.

  // When set, called after each launch, for traces.
  void observe(LaunchObserver observer);
  // When set, called before anything here writes to bytes of a parameter or state, by the thread
  // that will: a launch of any program, or write_state. It may wait.
  void guard_writes(WriteGuard guard);

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
