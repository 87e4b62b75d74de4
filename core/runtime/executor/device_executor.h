// SPDX-License-Identifier: Apache-2.0
// One device's part of an executor: its arena, kernels and streams. The plan is common to all
// devices. This class knows nothing of names, layouts or threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/devices/device.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/launch_trace.h"

namespace tessera {

// The host enqueues a run while the device still executes the previous one.
inline constexpr size_t kMostRunsUnderWay = 2;

// An array of f32 or f64 in the arena, contiguous.
struct ResultPlace {
  int64_t offset = 0;
  int64_t elements = 0;
  DType dtype = DType::kF32;

  size_t bytes() const { return static_cast<size_t>(elements * dtype_bytes(dtype)); }
};

class DeviceExecutor {
 public:
  // `number` is the device's place in the mesh. Without a communicator, collectives can only be
  // planned.
  DeviceExecutor(Device& device, int64_t number, Communicator* communicator);
  ~DeviceExecutor();
  DeviceExecutor& operator=(DeviceExecutor&&) = delete;  // Neither copied nor moved.

  Device& device() const { return device_; }
  int64_t number() const { return number_; }

  // Returns what plan_memory needs to know about kernels; valid as long as this object.
  KernelFacts facts();
  // Prepares the collectives of a plan, for which devices may connect. Arguments as in
  // add_program().
  void prepare_collectives(const StepProgram& plan, const Graph& graph);
  // Allocates the arena, zeroed; false if the device has not enough memory.
  bool allocate(int64_t bytes);
  // Prepares the launches of a plan for `graph`, which differs from the plan's graph at most in the
  // values of attributes. Both must outlive this object.
  void add_program(const StepProgram& plan, const Graph& graph);

  DeviceBuffer buffer(int64_t offset, int64_t bytes) { return {&device_, arena_ + offset, bytes}; }
  // Copy between runs. A copy to the host is complete on return; one from the host is complete
  // before the next run begins, and when synchronize() returns.
  void copy_from_host(int64_t offset, std::span<const std::byte> from);
  void copy_to_host(std::span<std::byte> to, int64_t offset);
  void synchronize() { compute_->synchronize(); }

  // A run of a program, in two parts. start() enqueues its launches and copies of the arrays at
  // these places to the host. Collectives with kind kStart run on a second stream, and kWait waits
  // for them. An observed run has no other run beside it.
  enum class Timing { kUntimed, kTimed };
  void start(int program, Timing timing, const WriteGuard& guard,
             std::span<const ResultPlace> results = {});
  // Returns when the oldest started run is done, with the elements of these arrays, which are valid
  // until the next start. It throws the Error of the first run that has failed; launches may then
  // still run until end_streams().
  std::span<const double> finish(const LaunchObserver& observer);
  // Waits for the launches that have begun and drops the others. Nothing can be run after that.
  void end_streams();

 private:
  // One launch with its addresses resolved.
  struct PreparedLaunch {
    Kernel* kernel = nullptr;
    const Graph* graph = nullptr;
    const Node* node = nullptr;
    std::vector<DeviceAddress> inputs, outputs;
    DeviceAddress scratch;
    std::vector<DeviceBuffer> persistent;  // Outputs that are parameters or state.
    LaunchKind kind = LaunchKind::kRun;
    std::string_view task;               // Task of a pipeline: "F3"; else "".
    size_t start = 0;                    // For a wait: index of the launch that it waits for.
    std::unique_ptr<Event> ready, done;  // For a start: operands are ready, launch is done.

    LaunchArgs args() const { return {inputs, outputs, scratch, node}; }
  };
  struct Program {
    std::vector<PreparedLaunch> launches;
    std::vector<LaunchTime> times;     // Times of `launches`, while they are observed.
    int64_t runs = 0;                  // Number of runs so far.
    std::unique_ptr<Kernel> captured;  // Runs all launches at once, if the device can capture.
  };
  struct Run {
    size_t program = 0;
    size_t enqueued = 0;  // Number of launches so far.
    std::vector<ResultPlace> places;
    std::shared_ptr<std::byte[]>
        results;                   // Bytes of these places, in the device's kind of host memory.
    size_t room = 0;               // Bytes of `results`.
    std::vector<double> elements;  // Elements of all places, converted.
    std::unique_ptr<Event> end;
  };

  PreparedLaunch prepare(const StepProgram& plan, const Launch& launch, const Graph& graph);
  void enqueue(const Program& program, const PreparedLaunch& launch, LaunchTime* time);
  void enqueue_all(Run& run, Timing timing, const WriteGuard& guard);
  void capture(Run& run);
  void enqueue_run(Run& run, Timing timing, const WriteGuard& guard);
  void copy_results(Run& run, std::span<const ResultPlace> places);
  static void convert_results(Run& run);  // From `results` to `elements`.
  void await_oldest();
  void observe_launches(const Program& program, const LaunchObserver& observer) const;
  // Returns the launches one of which has failed, after a failure in this run.
  std::vector<const PreparedLaunch*> suspects(const Run& run) const;
  [[noreturn]] void fail_run(const Run& run, const LaunchFailure& failure) const;
  Program& program_of(const Run& run) { return programs_[run.program]; }
  Run& run_under_way(size_t age) { return runs_[(oldest_ + age) % kMostRunsUnderWay]; }
  CollectiveNeeds collective_needs(const Graph& graph, const Node& node) const;
  // Returns the prepared kernel of a node; equal nodes share one, as in the layers of an unrolled
  // stack. Each collective node has its own, which can name the layer it serves.
  Kernel& kernel(const Graph& graph, const Node& node);

  Device& device_;
  int64_t number_;
  Communicator* communicator_;
  // Nodes must not be replaced by others of the same address.
  std::unordered_map<const Node*, std::shared_ptr<Kernel>> kernels_;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_by_signature_;
  std::string signature_;  // Signature of the last node; kept to reuse its memory.
  DeviceAddress arena_;
  int64_t bytes_ = 0;
  std::vector<Program> programs_;
  std::array<Run, kMostRunsUnderWay> runs_;  // Ring buffer.
  size_t oldest_ = 0, under_way_ = 0;
  std::unique_ptr<Stream> compute_, communication_;  // The second is null if no program has starts.
};

}  // namespace tessera
