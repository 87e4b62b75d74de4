// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/device_state.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace tessera::virtual_gpu {
namespace {

uint64_t environment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : std::strtoull(value, nullptr, 10);
}

std::string used_by(const UnorderedAccess& conflict) {
  return fmt::format("which {} {}", *conflict.earlier.name,
                     conflict.earlier_writes ? "writes" : "reads");
}

// Runs in a signal handler, so it only records the access.
bool host_touches_closed_memory(const void* address) {
  State& s = state();
  const Lock lock(s.mutex);
  for (const auto& memory : s.pinned) {
    if (!memory->holds(address)) continue;
    for (const State::HostUse& use : s.host_uses) {
      const HostBytes& bytes = use.bytes;
      const bool inside = address >= bytes.begin && address < bytes.begin + bytes.bytes;
      const bool waited = host_function != nullptr && use.stamp.is_before(host_function->clock);
      if (bytes.use == HostBytes::Use::kWrite && inside && !waited)
        s.touched = {use.device, use.stamp.name,
                     static_cast<const std::byte*>(address) - bytes.begin};
    }
    memory->set_open(memory->host(), memory->bytes(), true);
    return true;
  }
  return false;
}

}  // namespace

thread_local const Work* host_function = nullptr;
thread_local DevicePtr current_device;

State& state() {
  static State* const instance = new State;  // Never destroyed: also used during process exit.
  return *instance;
}

CUresult call(const std::function<void(const Call& call)>& body) {
  State& s = state();
  Lock lock(s.mutex);
  try {
    if (!s.initialised) throw Refusal{CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called"};
    if (host_function != nullptr)
      throw Refusal{CUDA_ERROR_NOT_PERMITTED, "a host function calls the driver"};
    const DevicePtr device = current_device;
    if (device == nullptr || device->retained == 0)
      throw Refusal{CUDA_ERROR_INVALID_CONTEXT, "no context is current on this thread"};
    s.report_touched();
    s.run_by_chance(lock);
    if (device->error == CUDA_SUCCESS) body({s, lock, device});
    return device->error;
  } catch (const Refusal& refusal) {
    if (!refusal.text.empty()) s.last_fault = refusal.text;
    return refusal.error;
  }
}

void State::restart() {
  const Config standard;
  config.gpus = environment("TESSERA_VIRTUAL_GPUS", standard.gpus);
  config.memory = environment("TESSERA_VIRTUAL_GPU_MEMORY", standard.memory);
  config.seed = environment("TESSERA_VIRTUAL_GPU_SEED", standard.seed);
  config.peer_access = environment("TESSERA_VIRTUAL_GPU_PEER_ACCESS", standard.peer_access);
  config.print = environment("TESSERA_VIRTUAL_GPU_PRINT", standard.print);
  config.capability = environment("TESSERA_VIRTUAL_GPU_CAPABILITY", standard.capability);
  config.cuda_version = environment("TESSERA_VIRTUAL_GPU_CUDA_VERSION", standard.cuda_version);
  const char* const plan = std::getenv("TESSERA_VIRTUAL_GPU_FAULT");
  tessera_virtual_gpu_plan_fault(plan != nullptr ? plan : "");
  random_.seed(config.seed);
  initialised = false;
  while (!captures.empty()) end_capture(captures.back());
  ready_.clear(), host_uses.clear(), pinned.clear(), devices.clear();
  streams = {}, events = {}, modules = {}, functions = {}, graphs = {}, executables = {};
  history_.clear(), times_.clear(), retired_.clear(), host_clock_ = {};
  pending_host_functions_ = 0;
  last_fault.clear(), warnings.clear(), touched = {}, graph_launches = pageable_copies = 0;
  for (const auto& [text, module] : parsed) module->forget_addresses();
  memory = std::make_unique<Memory>();
  for (uint64_t i = 0; i < config.gpus; ++i)
    devices.push_back(std::make_shared<Device>(Device{.ordinal = static_cast<int>(i)}));
}

void State::fail(Device& device, CUresult error, const std::string& text) {
  if (device.error != CUDA_SUCCESS) return;
  device.error = error;
  last_fault = text;
  if (config.print != 0) fmt::print(stderr, "virtual GPU: fault: {}\n", last_fault);
}

void State::report_touched() {
  if (touched.device != nullptr)
    fail(*touched.device, CUDA_ERROR_LAUNCH_FAILED,
         fmt::format("the host uses byte {} of what {} writes, and has not waited for it",
                     touched.offset, *touched.name));
  touched = {};
}

bool State::plan_says(std::string_view kind) {
  return planned.kind == kind && --planned.countdown == 0;
}

size_t State::new_component() {
  // A component is reused only if the host has waited for all of its earlier work.
  const auto known = std::find_if(retired_.begin(), retired_.end(),
                                  [&](size_t c) { return host_clock_[c] >= times_[c]; });
  if (known == retired_.end()) {
    times_.push_back(0);
    return times_.size() - 1;
  }
  const size_t component = *known;
  retired_.erase(known);
  return component;
}

void State::enqueue(const StreamPtr& stream, Task task) {
  if (stream->capture == nullptr) {
    submit(stream, std::move(task));
    return;
  }
  if (!stream->capture->valid)
    throw Refusal{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture failed earlier"};
  Graph& nodes = stream->capture->graph;
  nodes.push_back({stream->device, std::move(task), stream->frontier, stream->priority});
  stream->frontier = {nodes.size() - 1};
}

WorkPtr State::submit(const StreamPtr& stream, Task task, std::vector<WorkPtr> also_after) {
  also_after.push_back(stream->last);
  task.name = fmt::format("{} on {}", task.name, stream->name);
  stream->last =
      start(stream->device, std::move(task), stream->component, stream->priority, also_after);
  return stream->last;
}

WorkPtr State::submit_node(const GraphNode& node, const Stream& stream, int priority,
                           size_t component, const std::vector<WorkPtr>& after) {
  Task task = node.task;
  task.name = fmt::format("{} of a graph on {}", task.name, stream.name);
  return start(node.device, std::move(task), component, priority, after);
}

WorkPtr State::start(const DevicePtr& device, Task task, size_t component, int priority,
                     const std::vector<WorkPtr>& after) {
  auto work = std::make_shared<Work>();
  work->device = device;
  work->task = std::move(task);
  work->stamp = {component, ++times_[component], std::make_shared<std::string>(work->task.name)};
  work->priority = priority;
  work->sequence = submitted_++;
  work->clock = host_clock_;
  note_host_use(*work);
  for (const WorkPtr& earlier : after) {
    if (earlier == nullptr) continue;
    work->clock.join(earlier->clock);
    work->failed |= earlier->failed;
    if (earlier->done) continue;
    earlier->followers.push_back(work);
    ++work->blockers;
  }
  work->clock.set(component, work->stamp.time);
  if (work->blockers == 0) ready_.push_back(work);
  return work;
}

void State::note_host_use(const Work& work) {
  const HostBytes& bytes = work.task.host;
  pending_host_functions_ += work.task.kind == Task::Kind::kHostFunction ? 1 : 0;
  bool is_shared = pending_host_functions_ > 0;  // Other work may read or write these bytes too.
  const bool writes = bytes.use == HostBytes::Use::kWrite;
  for (HostUse& use : host_uses) {
    if (bytes.use != HostBytes::Use::kNone && use.bytes.overlaps(bytes)) {
      is_shared |= writes || use.bytes.use == HostBytes::Use::kWrite;
      if (writes) use.checksum.reset();
    }
    if (pending_host_functions_ > 0) use.checksum.reset();
  }
  if (bytes.use == HostBytes::Use::kNone) return;
  HostUse& use = host_uses.emplace_back(HostUse{bytes, work.stamp, work.device, std::nullopt});
  if (!writes && !is_shared) use.checksum = bytes.checksum();
  if (!writes) return;
  // Early reads by the host find NaN, or fault if the page is protected.
  if (!is_shared) std::memset(bytes.memory->device_view(bytes.begin), 0xFF, bytes.bytes);
  watch_closed_memory(host_touches_closed_memory);
  bytes.memory->set_open(bytes.begin, bytes.bytes, false);
}

void State::check_unchanged(const HostUse& use) {
  if (use.checksum && *use.checksum != use.bytes.checksum())
    fail(*use.device, CUDA_ERROR_LAUNCH_FAILED,
         fmt::format("the host changed what {} reads, and had not waited for it", *use.stamp.name));
}

void State::host_joins(const Clock& clock) {
  host_clock_.join(clock);
  std::vector<HostUse> left;
  for (const HostUse& use : host_uses) {
    if (!use.stamp.is_before(host_clock_)) {
      left.push_back(use);
      continue;
    }
    if (use.device->error == CUDA_SUCCESS) check_unchanged(use);
    if (use.bytes.use == HostBytes::Use::kWrite)
      use.bytes.memory->set_open(use.bytes.begin, use.bytes.bytes, true);
  }
  host_uses = std::move(left);
  for (const HostUse& use : host_uses)
    if (use.bytes.use == HostBytes::Use::kWrite)
      use.bytes.memory->set_open(use.bytes.begin, use.bytes.bytes, false);
  for (size_t i = 0; i < times_.size(); ++i)
    if (host_clock_[i] < times_[i]) return;
  history_.clear();  // Later work is ordered after all earlier work.
}

WorkPtr State::take_ready() {
  size_t chosen = 0;
  if (config.seed == 0) {
    for (size_t i = 1; i < ready_.size(); ++i)
      if (ready_[i]->sequence < ready_[chosen]->sequence) chosen = i;
  } else {
    chosen = random_() % ready_.size();
    const size_t other = random_() % ready_.size();
    if (ready_[other]->priority < ready_[chosen]->priority) chosen = other;
  }
  const auto may_run = [](const WorkPtr& work) {
    return !work->task.may_run || work->failed || work->device->error != CUDA_SUCCESS ||
           work->task.may_run();
  };
  // Work that may not run yet is tried again after the other work.
  std::rotate(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(chosen), ready_.end());
  const auto turn = std::find_if(ready_.begin(), ready_.end(), may_run);
  if (turn == ready_.end()) return nullptr;
  std::swap(*turn, ready_.back());
  WorkPtr work = std::move(ready_.back());
  ready_.pop_back();
  return work;
}

bool State::run_one(Lock& lock) {
  if (ready_.empty()) return false;
  const WorkPtr work = take_ready();
  if (work == nullptr) return false;
  if (work->task.kind == Task::Kind::kKernel && plan_says("hang"))
    return true;  // A task that never completes.
  CUresult& error = work->device->error;
  if (work->failed && error == CUDA_SUCCESS)
    error = CUDA_ERROR_LAUNCH_FAILED;  // A predecessor on another GPU failed.
  if (error == CUDA_SUCCESS)
    if (const std::optional<Fault> fault = run(lock, *work))
      fail(*work->device, CUDA_ERROR_LAUNCH_FAILED,
           fmt::format("{}: {}", *work->stamp.name, fault->text));
  finish(*work);
  return true;
}

void State::run_by_chance(Lock& lock) {
  if (config.seed != 0 && random_() % 4 == 0) run_one(lock);
}

std::optional<Fault> State::run(Lock& lock, const Work& work) {
  const Task& task = work.task;
  const bool is_kernel = task.kind == Task::Kind::kKernel;
  if (is_kernel && plan_says("launch_failure")) return Fault{"planned: the launch fails"};
  const bool is_lost =
      ((is_kernel || task.kind == Task::Kind::kCopy) && plan_says("lost_device")) ||
      (task.bytes_to_host >= 4096 && plan_says("lost_while_reading"));
  if (is_lost)
    fail(*work.device, CUDA_ERROR_DEVICE_UNAVAILABLE,
         fmt::format("planned: GPU {} is lost", work.device->ordinal));
  for (const HostUse& use : host_uses)
    if (use.stamp.name == work.stamp.name) check_unchanged(use);
  if (!task.run || work.device->error != CUDA_SUCCESS) return std::nullopt;
  const uint64_t seed = config.seed == 0 ? 0 : random_() | 1;
  host_function = task.kind == Task::Kind::kHostFunction ? &work : nullptr;
  AccessLog log;
  std::optional<Fault> fault;
  lock.unlock();
  try {
    log = task.run(seed);
  } catch (const Fault& thrown) {
    fault = thrown;
  }
  lock.lock();
  host_function = nullptr;
  if (is_kernel && !fault && kernel_observer) kernel_observer(task, log);
  return fault ? fault : check_accesses(work, log);
}

std::optional<Fault> State::check_accesses(const Work& work, const AccessLog& log) {
  if (work.task.kind == Task::Kind::kKernel)
    for (const auto* ranges : {&log.reads, &log.writes})
      for (const ByteRange& range : *ranges) {
        const auto allocation = allocation_at(range.begin);
        if (allocation && allocation->device != work.device &&
            !work.device->peers.contains(allocation->device->ordinal))
          return Fault{fmt::format("uses {} without cuCtxEnablePeerAccess", describe(range))};
      }
  const auto conflict = history_.add(log, work.stamp, work.clock);
  if (!conflict) return std::nullopt;
  return Fault{fmt::format("{} {}, {}, and nothing orders the two",
                           conflict->later_writes ? "writes" : "reads", describe(conflict->bytes),
                           used_by(*conflict))};
}

void State::finish(Work& work) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  work.finished_ms = std::chrono::duration<double, std::milli>(now).count();
  work.done = true;
  work.failed |= work.device->error != CUDA_SUCCESS;
  if (work.task.kind == Task::Kind::kHostFunction) --pending_host_functions_;
  work.task = {};
  for (const WorkPtr& follower : work.followers) {
    follower->failed |= work.failed;
    if (--follower->blockers == 0) ready_.push_back(follower);
  }
  work.followers.clear();
  changed.notify_all();
}

void State::wait(Lock& lock, const WorkPtr& work) {
  if (work == nullptr) return;
  // Work that may not run yet waits for another process.
  constexpr auto kPoll = std::chrono::microseconds(200);
  while (!work->done) {
    if (run_one(lock)) continue;
    if (ready_.empty())
      changed.wait(lock);
    else
      changed.wait_for(lock, kPoll);
  }
  if (!work->failed) host_joins(work->clock);
}

void State::check_no_capture(std::string_view call) {
  for (const CapturePtr& capture : captures)
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
         capture->thread == std::this_thread::get_id()))
      check_not_captured(*capture->origin, call);
}

void State::check_not_captured(const Stream& stream, std::string_view call) {
  if (stream.capture == nullptr) return;
  stream.capture->valid = false;
  throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                fmt::format("{} while {} is captured into a graph", call, stream.name)};
}

void State::end_capture(CapturePtr capture) {
  const auto leave = [&](const StreamPtr& stream) {
    if (stream->capture != capture) return;
    stream->capture = nullptr;
    stream->frontier.clear();
  };
  streams.for_each(leave);
  leave(capture->origin);  // Its handle may have been destroyed.
  std::erase(captures, capture);
}

DevicePtr State::device_of(CUcontext context) const {
  const size_t index = reinterpret_cast<uintptr_t>(context) - 1;
  return index < devices.size() ? devices[index] : nullptr;
}

std::optional<State::DeviceAllocation> State::allocation_at(CUdeviceptr address) const {
  for (const DevicePtr& device : devices) {
    const auto next = device->allocations.upper_bound(address);
    if (next == device->allocations.begin()) continue;
    if (const auto& [begin, bytes] = *std::prev(next); address < begin + bytes)
      return DeviceAllocation{device, {begin, begin + bytes}};
  }
  return std::nullopt;
}

void State::release(CUdeviceptr address) {
  const auto allocation = allocation_at(address);
  if (!allocation || allocation->bytes.begin != address)
    throw Refusal{CUDA_ERROR_INVALID_VALUE,
                  fmt::format("freeing {:#x}, where no allocation begins", address)};
  if (const auto conflict = history_.conflict(allocation->bytes, host_clock_)) {
    fail(*allocation->device, CUDA_ERROR_LAUNCH_FAILED,
         fmt::format("cuMemFree of {}, {}, and the host has not waited for it",
                     describe(conflict->bytes), used_by(*conflict)));
    throw Refusal{CUDA_ERROR_LAUNCH_FAILED, ""};
  }
  memory->release(address);
  allocation->device->allocations.erase(address);
}

std::string State::describe(ByteRange bytes) const {
  const auto allocation = allocation_at(bytes.begin);
  if (!allocation) return fmt::format("{} bytes at {:#x}", bytes.end - bytes.begin, bytes.begin);
  const auto [begin, end] = allocation->bytes;
  return fmt::format("bytes {} to {} of the {} bytes at {:#x} on GPU {}", bytes.begin - begin,
                     bytes.end - begin, end - begin, begin, allocation->device->ordinal);
}

}  // namespace tessera::virtual_gpu

namespace virtual_gpu = tessera::virtual_gpu;

const char* tessera_virtual_gpu_last_fault() { return virtual_gpu::state().last_fault.c_str(); }
const char* tessera_virtual_gpu_warnings() { return virtual_gpu::state().warnings.c_str(); }
int64_t tessera_virtual_gpu_graph_launches() { return virtual_gpu::state().graph_launches; }
int64_t tessera_virtual_gpu_pageable_copies() { return virtual_gpu::state().pageable_copies; }
void tessera_virtual_gpu_restart() {
  virtual_gpu::current_device = nullptr;
  virtual_gpu::state().restart();
}
void tessera_virtual_gpu_plan_fault(const char* text) {
  const std::string plan = text;
  const size_t colon = plan.find(':');
  virtual_gpu::state().planned = {
      plan.substr(0, colon), colon == std::string::npos ? 1 : std::atoi(plan.c_str() + colon + 1)};
}
