// SPDX-License-Identifier: Apache-2.0
// Everything that the stand-in driver knows: GPUs, streams, events, and the work that waits to run.
// Work runs on the threads of the host when they wait or ask, in any order that streams and events
// permit; TESSERA_VIRTUAL_GPU_SEED chooses the order (0: as it was submitted).
#pragma once

#include <cuda.h>

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
#include <thread>
#include <vector>

#include "tests/virtual_gpu/happens_before.h"
#include "tests/virtual_gpu/host_memory.h"
#include "tests/virtual_gpu/interpreter.h"
#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {

// From TESSERA_VIRTUAL_GPU_… in the environment.
struct Config {
  int gpus = 4;  // TESSERA_VIRTUAL_GPUS
  uint64_t memory = 80ull << 30;
  uint64_t seed = 1;
  int capability = 90;
  int cuda_version = 13000;
};

// TESSERA_VIRTUAL_GPU_FAULT=kind:n makes the n-th operation of a kind fail, once:
// out_of_memory (allocations), launch_failure (kernels), lost_device (kernels and copies).
struct PlannedFault {
  std::string kind;
  int countdown = 0;
};

struct Device;
struct Stream;
struct Work;
using StreamPtr = std::shared_ptr<Stream>;
using WorkPtr = std::shared_ptr<Work>;

// What a stream or a graph is asked to do.
struct Task {
  enum class Kind { kMark, kKernel, kCopy, kHostFunction, kMemory };
  Kind kind = Kind::kMark;
  std::string name;
  std::function<AccessLog(uint64_t seed)> run;  // Null: nothing. Throws Fault.
  HostBytes host;
};

// A task in its place in the order of things.
struct Work {
  std::shared_ptr<Device> device;
  Task task;
  Stamp stamp;
  Clock clock;  // Of what is done before, and itself.
  int priority = 0;
  uint64_t sequence = 0;
  int blockers = 0;  // Of the work that must be done first.
  std::vector<WorkPtr> followers;
  bool done = false;
  bool failed = false;
  double finished_ms = 0;
};

// Nodes in an order in which they can run.
struct GraphNode {
  std::shared_ptr<Device> device;
  Task task;
  std::vector<size_t> after;
};
struct Graph {
  std::vector<GraphNode> nodes;
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::shared_ptr<Stream> origin;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread = std::this_thread::get_id();
  bool valid = true;
};

struct Stream {
  std::shared_ptr<Device> device;
  std::string name;
  int priority = 0;
  bool blocking = false;  // Ordered with the default stream.
  size_t component = 0;
  Clock clock;
  WorkPtr last;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;  // The nodes that the next one comes after.
};

struct Event {
  std::shared_ptr<Device> device;
  unsigned flags = 0;
  WorkPtr recorded;  // The last recording.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;
};

struct Device {
  int ordinal = 0;
  int retained = 0;                          // Times that the primary context was.
  CUresult error = CUDA_SUCCESS;             // Sticky.
  std::set<int> peers;                       // GPUs whose memory its kernels may use.
  std::map<uint64_t, uint64_t> allocations;  // Bytes by address.
  StreamPtr default_stream;
  int streams_made = 0;
};

// Handles are never used twice, so that a use after destruction is found.
template <typename T, typename Handle>
class Handles {
 public:
  Handle add(std::shared_ptr<T> object) {
    static uintptr_t next = 0x1000;
    const auto handle = reinterpret_cast<Handle>(next += 0x10);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  std::shared_ptr<T> find(Handle handle) const {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  bool remove(Handle handle) { return objects_.erase(handle) > 0; }
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

struct LoadedModule {
  std::shared_ptr<Device> device;
  std::shared_ptr<const Module> code;
  bool unloaded = false;
};
struct LoadedFunction {
  std::shared_ptr<LoadedModule> module;
  const KernelInfo* info = nullptr;
  int dynamic_shared_limit = 0;
};
struct ExecutableGraph {
  std::shared_ptr<Device> device;
  std::shared_ptr<const Graph> graph;
  std::vector<size_t> components;  // Of each node.
  WorkPtr last;                    // Launches of one graph run one after another.
};

using Lock = std::unique_lock<std::mutex>;

class State {
 public:
  // Reads the environment. All that was made before is gone.
  void restart();

  // To the stream, or to the graph that it is captured into.
  CUresult enqueue(const StreamPtr& stream, Task task, std::span<const WorkPtr> also_after = {});
  WorkPtr submit(const StreamPtr& stream, Task task, std::span<const WorkPtr> also_after);
  WorkPtr submit_node(const GraphNode& node, const Stream& stream, size_t component,
                      std::span<const WorkPtr> after);
  // Runs one piece of work that is ready; false if there is none.
  bool run_one(Lock& lock);
  // Now and then, so that work also runs before the host waits.
  void run_by_chance(Lock& lock);
  void run_until(Lock& lock, const WorkPtr& work);
  // The host knows that this work is done.
  void host_joins(const Clock& clock);

  size_t new_component();
  void retire_component(size_t component) { retired_.push_back(component); }
  StreamPtr new_stream(const std::shared_ptr<Device>& device, int priority, bool blocking);

  // Makes `error` the result of all later calls for this GPU, and prints the text.
  void fail(Device& device, CUresult error, const std::string& text);
  // Keeps the reason of a call's error result for last_fault().
  CUresult reject(CUresult error, std::string text);
  // For calls that no capture allows, of whatever stream: makes it invalid.
  CUresult check_no_capture(std::string_view call);
  // For calls that a captured stream does not allow.
  CUresult refuse(Stream& stream, std::string_view call);
  void end_capture(const std::shared_ptr<Capture>& capture);
  // Releases memory for the host; a fault if work may still use it.
  CUresult release(CUdeviceptr address);
  // The live allocation that holds an address.
  struct DeviceAllocation {
    std::shared_ptr<Device> device;
    ByteRange bytes;
  };
  std::optional<DeviceAllocation> allocation_at(CUdeviceptr address) const;
  std::shared_ptr<Device> device_of(CUcontext context) const;
  std::string describe(ByteRange bytes) const;
  bool plan_says(std::string_view kind);

  std::mutex mutex;
  std::condition_variable changed;
  Config config;
  PlannedFault planned;
  bool initialised = false;
  std::unique_ptr<Memory> memory;
  std::vector<std::shared_ptr<Device>> devices;
  Handles<Stream, CUstream> streams;
  Handles<Event, CUevent> events;
  Handles<LoadedModule, CUmodule> modules;
  Handles<LoadedFunction, CUfunction> functions;
  Handles<Graph, CUgraph> graphs;
  Handles<ExecutableGraph, CUgraphExec> executables;
  std::vector<std::shared_ptr<Capture>> captures;
  std::vector<std::shared_ptr<PinnedMemory>> pinned;
  Clock host_clock;
  std::string last_fault, warnings;

  // What the host must not touch before it has waited.
  struct HostUse {
    HostBytes bytes;
    Stamp stamp;
    std::shared_ptr<Device> device;
    std::optional<uint64_t> checksum;  // Of what a copy reads; none if the device may change it.
  };
  std::vector<HostUse> host_uses;

 private:
  WorkPtr make_work(const std::shared_ptr<Device>& device, Task task, size_t component,
                    Clock clock);
  void start(const WorkPtr& work, std::span<const WorkPtr> after);
  void note_host_use(const WorkPtr& work);
  void check_unchanged(const HostUse& use);
  WorkPtr take_ready();
  std::optional<Fault> run(Lock& lock, const WorkPtr& work);
  std::optional<std::string> check_accesses(const Work& work, const AccessLog& log);
  void finish(const WorkPtr& work);

  std::mt19937_64 random_;
  std::vector<WorkPtr> ready_;
  uint64_t submitted_ = 0;
  int pending_host_functions_ = 0;
  AccessHistory history_;
  std::vector<uint64_t> times_;  // Of each component.
  std::vector<size_t> retired_;
};

State& state();

// The work of the host function that this thread runs; null otherwise.
extern thread_local const Work* host_function;
extern thread_local std::shared_ptr<Device> current_device;

// A call of the driver that needs a current context: `body(device)` under the lock.
template <typename Body>
CUresult with_context(const Body& body) {
  State& s = state();
  Lock lock(s.mutex);
  if (!s.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (host_function != nullptr)
    return s.reject(CUDA_ERROR_NOT_PERMITTED, "a host function calls the driver");
  const std::shared_ptr<Device> device = current_device;
  if (device == nullptr || device->retained == 0)
    return s.reject(CUDA_ERROR_INVALID_CONTEXT, "no context is current on this thread");
  if (device->error != CUDA_SUCCESS) return device->error;
  try {
    s.run_by_chance(lock);
    if constexpr (std::is_invocable_v<Body, State&, const std::shared_ptr<Device>&, Lock&>) {
      return body(s, device, lock);
    } else {
      return body(s, device);
    }
  } catch (const Fault& fault) {
    return s.reject(CUDA_ERROR_INVALID_VALUE, fault.text);
  }
}

// `stream` of a call, with the default stream for null; null if there is no such stream.
StreamPtr find_stream(State& s, const std::shared_ptr<Device>& device, CUstream stream);

}  // namespace tessera::virtual_gpu

// For tests. The text of the last fault, or of the last call that was refused; "" if none.
extern "C" const char* tessera_virtual_gpu_last_fault();
// What is not an error but probably a mistake, one a line.
extern "C" const char* tessera_virtual_gpu_warnings();
// Reads the environment again; what was made before is gone. No call may be in progress.
extern "C" void tessera_virtual_gpu_restart();
// As TESSERA_VIRTUAL_GPU_FAULT, from now on.
extern "C" void tessera_virtual_gpu_plan_fault(const char* text);
