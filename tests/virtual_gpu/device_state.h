// SPDX-License-Identifier: Apache-2.0
// The state of the stand-in driver: GPUs, streams, events, and work that is not complete. Work runs
// on host threads while they wait or query, in any order that streams and events permit.
// TESSERA_VIRTUAL_GPU_SEED chooses the order (0: the order of submission).
#pragma once

#include <cuda.h>
// Declares the version that every driver has, like plugins/cuda/device/driver.h.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end);

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/virtual_gpu/happens_before.h"
#include "tests/virtual_gpu/host_memory.h"
#include "tests/virtual_gpu/interpreter.h"
#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

// Settings from the environment: TESSERA_VIRTUAL_GPUS, TESSERA_VIRTUAL_GPU_MEMORY and so on.
struct Config {
  uint64_t gpus = 4, memory = 80ull << 30, seed = 1, capability = 90, cuda_version = 13000;
  uint64_t peer_access = 1;  // 0: GPUs cannot read each other's memory.
  uint64_t print = 1;        // 0: faults are not printed; tests read them.
};

// TESSERA_VIRTUAL_GPU_FAULT=kind:n makes the n-th operation of a kind fail, once:
// out_of_memory (allocations, uploads of graphs), launch_failure (kernels), hang (kernels that
// never end), lost_device (kernels and copies), lost_while_reading (copies of at least 4 KiB to the
// host).
struct PlannedFault {
  std::string kind;
  int countdown = 0;
};

// Why a call returns an error.
struct Refusal {
  CUresult error;
  std::string text;
};

struct Device {
  int ordinal = 0;
  int retained = 0;               // Number of times the primary context was retained.
  CUresult error = CUDA_SUCCESS;  // Sticky error: the result of all later calls.
  std::set<int> peers = {};       // GPUs whose memory its kernels may use.
  std::map<uint64_t, uint64_t> allocations = {};  // Bytes by address.
  int streams_made = 0;
};
using DevicePtr = std::shared_ptr<Device>;

// An operation of a stream, or of a node of a graph.
struct Task {
  enum class Kind { kMark, kKernel, kCopy, kHostFunction, kMemory };
  Kind kind = Kind::kMark;
  std::string name = {};
  std::function<AccessLog(uint64_t seed)> run = nullptr;  // Null: no operation. Throws Fault.
  Grid grid = {};                                         // For kernels.
  HostBytes host = {};
  size_t bytes_to_host = 0;
  std::function<bool()> may_run = nullptr;  // Polled until true; null: always true.
};

// A submitted task with its dependencies.
struct Work {
  DevicePtr device;
  Task task;
  Stamp stamp;
  Clock clock;  // Work that is complete before it, and itself.
  int priority = 0;
  uint64_t sequence = 0;
  int blockers = 0;  // Number of incomplete predecessors.
  std::vector<std::shared_ptr<Work>> followers;
  bool done = false, failed = false;
  double finished_ms = 0;
};
using WorkPtr = std::shared_ptr<Work>;

// Nodes in topological order.
struct GraphNode {
  DevicePtr device;
  Task task;
  std::vector<size_t> after;
  int priority = 0;  // Priority of the captured stream.
};
using Graph = std::vector<GraphNode>;
struct ExecutableGraph {
  DevicePtr device;
  Graph nodes;
  std::vector<size_t> components;  // By node: component of the clocks.
  bool uses_node_priority = false;
  WorkPtr last;  // Launches of one graph run one after another.
};

struct Stream;
struct Capture {
  Graph graph;
  std::shared_ptr<Stream> origin;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread = std::this_thread::get_id();
  bool valid = true;
};
using CapturePtr = std::shared_ptr<Capture>;

struct Stream {
  DevicePtr device;
  std::string name;
  int priority = 0;
  size_t component = 0;
  WorkPtr last;
  CapturePtr capture;
  std::vector<size_t> frontier;  // Nodes that the next node depends on.
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  DevicePtr device;
  unsigned flags = 0;
  WorkPtr recorded;  // The last recording.
  CapturePtr capture;
  std::vector<size_t> frontier;
};

struct LoadedModule {
  DevicePtr device;
  std::shared_ptr<const Module> code;
  std::string_view ptx;  // Valid until the process ends.
  bool unloaded = false;
  std::set<const KernelInfo*> named = {};  // Found by cuModuleGetFunction.
};
struct LoadedFunction {
  std::shared_ptr<LoadedModule> module;
  const KernelInfo* info = nullptr;
  int max_threads = 0;  // Threads per block; __launch_bounds__ reduces it.
  int dynamic_shared_limit = 0;
  bool loaded = false;  // cuFuncLoad was called.
};

// Handles are never reused, so that a use after destruction is found.
template <typename T, typename Handle>
class Handles {
 public:
  Handle add(std::shared_ptr<T> object) {
    static uintptr_t next = 0x1000;
    const auto handle = reinterpret_cast<Handle>(next += 0x10);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  std::shared_ptr<T> at(Handle handle) const {
    const auto found = objects_.find(handle);
    if (found == objects_.end())
      throw Refusal{CUDA_ERROR_INVALID_HANDLE, "a handle of nothing, or of what was destroyed"};
    return found->second;
  }
  std::shared_ptr<T> remove(Handle handle) {
    const std::shared_ptr<T> object = at(handle);
    objects_.erase(handle);
    return object;
  }
  template <typename Condition>
  size_t remove_if(const Condition& condition) {
    return std::erase_if(objects_, [&](const auto& each) { return condition(*each.second); });
  }
  template <typename Use>
  void for_each(const Use& use) const {
    for (const auto& [handle, object] : objects_) use(object);
  }

 private:
  std::map<Handle, std::shared_ptr<T>> objects_;
};

using Lock = std::unique_lock<std::mutex>;

class State {
 public:
  // Reads the environment. Discards all earlier state.
  void restart();

  // Adds a task to the stream, or to the graph that it is captured into.
  void enqueue(const StreamPtr& stream, Task task);
  // Submits a task to the stream. `also_after`: further predecessors; nulls are ignored.
  WorkPtr submit(const StreamPtr& stream, Task task, std::vector<WorkPtr> also_after = {});
  WorkPtr submit_node(const GraphNode& node, const Stream& stream, int priority, size_t component,
                      const std::vector<WorkPtr>& after);
  // Runs one ready piece of work. Returns false if no work is ready.
  bool run_one(Lock& lock);
  // Runs ready work at random times, so that work also runs before the host waits.
  void run_by_chance(Lock& lock);
  // Runs work until this is complete; it is then ordered before all later work of the host.
  void wait(Lock& lock, const WorkPtr& work);
  void host_joins(const Clock& clock);

  size_t new_component();
  void retire_component(size_t component) { retired_.push_back(component); }

  // Makes `error` the result of all later calls for this GPU, and prints the text.
  void fail(Device& device, CUresult error, const std::string& text);
  void report_touched();
  bool plan_says(std::string_view kind);
  // Throws Refusal and invalidates the capture if any stream is captured in a mode that covers this
  // thread. For calls that no capture allows.
  void check_no_capture(std::string_view call);
  // Throws Refusal and invalidates the capture if this stream is captured.
  static void check_not_captured(const Stream& stream, std::string_view call);
  void end_capture(CapturePtr capture);

  // Frees memory for the host. Throws Fault if work may still use it.
  void release(CUdeviceptr address);
  // The live allocation that holds an address.
  struct DeviceAllocation {
    DevicePtr device;
    ByteRange bytes;
  };
  std::optional<DeviceAllocation> allocation_at(CUdeviceptr address) const;
  DevicePtr device_of(CUcontext context) const;  // Null for none.

  std::mutex mutex;
  std::condition_variable changed;
  Config config;
  PlannedFault planned;
  bool initialised = false;
  std::unique_ptr<Memory> memory;
  std::vector<DevicePtr> devices;
  Handles<Stream, CUstream> streams;
  Handles<Event, CUevent> events;
  // Parsed modules by PTX text, shared by the GPUs of a process. A restart keeps them.
  std::map<std::string, std::shared_ptr<const Module>, std::less<>> parsed;
  Handles<LoadedModule, CUmodule> modules;
  Handles<LoadedFunction, CUfunction> functions;
  Handles<Graph, CUgraph> graphs;
  Handles<ExecutableGraph, CUgraphExec> executables;
  std::vector<CapturePtr> captures;
  std::vector<std::shared_ptr<PinnedMemory>> pinned;
  std::string last_fault, warnings;
  // If not null, called after each kernel with the ranges that it read and wrote.
  std::function<void(const Task& kernel, const AccessLog& log)> kernel_observer;
  int64_t graph_launches = 0, pageable_copies = 0;

  // Host memory that the host must not access before it has waited for a copy.
  struct HostUse {
    HostBytes bytes;
    Stamp stamp;
    DevicePtr device;
    // Checksum of the bytes that a copy reads; none if other work may change them.
    std::optional<uint64_t> checksum;
  };
  std::vector<HostUse> host_uses;
  // A host access before the copy `name` was complete, at this offset of its bytes.
  struct Touched {
    DevicePtr device;
    std::shared_ptr<const std::string> name;
    ptrdiff_t offset = 0;
  };
  Touched touched;

 private:
  WorkPtr start(const DevicePtr& device, Task task, size_t component, int priority,
                const std::vector<WorkPtr>& after);
  void note_host_use(const Work& work);
  void check_unchanged(const HostUse& use);
  WorkPtr take_ready();  // Null if no work may run.
  std::optional<Fault> run(Lock& lock, const Work& work);
  std::optional<Fault> check_accesses(const Work& work, const AccessLog& log);
  void finish(Work& work);
  std::string describe(ByteRange bytes) const;

  std::mt19937_64 random_;
  std::vector<WorkPtr> ready_;
  uint64_t submitted_ = 0;
  int pending_host_functions_ = 0;
  Clock host_clock_;
  AccessHistory history_;
  std::vector<uint64_t> times_;  // By component.
  std::vector<size_t> retired_;
};

State& state();

// The work of the host function that this thread runs; null otherwise.
extern thread_local const Work* host_function;
extern thread_local DevicePtr current_device;

// The PTX that a GPU of this compute capability would run: the newest in a fatbin, or the text.
// Throws Refusal.
std::string_view ptx_of(const void* image, int capability, uint64_t cuda_version = 99990);

// Context of a driver call that needs a current context.
struct Call {
  State& s;
  Lock& lock;
  const DevicePtr& device;
};
// Locks the state and calls `body(call)`. Returns CUDA_SUCCESS or the error that it throws.
CUresult call(const std::function<void(const Call& call)>& body);

}  // namespace tessera::virtual_gpu

// Returns the text of the last fault or refused call, for tests; "" if no call failed.
extern "C" const char* tessera_virtual_gpu_last_fault();
// Returns probable mistakes that are not errors, one per line.
extern "C" const char* tessera_virtual_gpu_warnings();
// Reads the environment again and discards all state. No call may be in progress.
extern "C" void tessera_virtual_gpu_restart();
// Returns the number of graph launches.
extern "C" int64_t tessera_virtual_gpu_graph_launches();
// Returns the number of copies from or to host memory that is not page-locked.
extern "C" int64_t tessera_virtual_gpu_pageable_copies();
// Plans a fault from now on; `text` has the format of TESSERA_VIRTUAL_GPU_FAULT.
extern "C" void tessera_virtual_gpu_plan_fault(const char* text);
