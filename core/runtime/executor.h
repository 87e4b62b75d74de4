// SPDX-License-Identifier: Apache-2.0
// Runs step programs on one device. Programs (train, eval) share one arena: parameters and state by
// name, temporaries by overlap.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/memory.h"
#include "core/passes/remat.h"

namespace tessera {

struct CompileOptions {
  Mesh mesh;
  RematPolicy remat;
  bool verify_passes = false;  // Run the verifier between passes (always in debug builds).
  // Called with each stage's name ("trace", "remat", "lower", "fuse", "schedule") and graph, for
  // --dump_graph.
  std::function<void(std::string_view stage, const Graph&)> on_stage;
};

// One arena's view of a parameter or state.
struct Buffer {
  std::string name;
  InputKind kind = InputKind::kState;
  Type type;  // Local.
};

class Executor {
 public:
  explicit Executor(Device& device);
  ~Executor();

  // Compiles a traced graph; returns the program's number. All programs are added before
  // `allocate`; the first to name a state decides where it lies.
  int add_program(const Graph& traced, const CompileOptions& options);
  // Allocates the arena, zeroed. Error with the plan's bytes and what is there if it does not fit.
  void allocate();
  // What the programs so far need; what is allocated, once it is.
  int64_t arena_bytes() const;
  // Offsets are final once the arena is allocated.
  const StepPlan& plan(int program) const;
  // What the backward pass of a program keeps of its forward pass.
  const std::vector<SavedValue>& saved_values(int program) const;

  // Parameters and state of all programs.
  const std::vector<Buffer>& persistent() const;
  void write_state(std::string_view name, std::span<const std::byte> bytes);
  void read_state(std::string_view name, std::span<std::byte> bytes) const;
  // Direct access to a persistent buffer on devices whose memory the host can see (CPU).
  std::span<std::byte> host_view(std::string_view name);

  // Batch inputs and outputs hold until another program runs: write before, read after.
  void write_input(int program, std::string_view name, std::span<const std::byte> bytes);
  void run(int program);
  void read_output(int program, std::string_view name, std::span<std::byte> bytes) const;
  float read_scalar(int program, std::string_view name) const;  // Of an f32 scalar output.

  // When set, called after each launch with its node and times (ns, steady clock), for traces.
  using LaunchObserver =
      std::function<void(const Graph&, const Node&, int64_t begin_ns, int64_t end_ns)>;
  void observe(LaunchObserver observer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
