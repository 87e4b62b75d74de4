// SPDX-License-Identifier: Apache-2.0
// Driver functions: streams, events, copies, host functions.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"

namespace tessera::virtual_gpu {
namespace {

// A call for one stream.
template <typename Body>
CUresult with_stream(CUstream handle, const Body& body) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device, Lock& lock) {
    const StreamPtr stream = find_stream(s, device, handle);
    if (stream == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    return body(s, stream, lock);
  });
}

// Waits for a stream or event. Capturing ones have no work to wait for.
CUresult wait_for(State& s, Lock& lock, const std::shared_ptr<Device>& device,
                  const WorkPtr& work) {
  s.run_until(lock, work);
  if (work != nullptr && !work->failed) s.host_joins(work->clock);
  return device->error;
}

CUresult ask_for(State& s, Lock& lock, const std::shared_ptr<Device>& device, const WorkPtr& work) {
  if (work == nullptr) return CUDA_SUCCESS;
  s.run_one(lock);
  if (!work->done) return device->error != CUDA_SUCCESS ? device->error : CUDA_ERROR_NOT_READY;
  return wait_for(s, lock, device, work);
}

std::shared_ptr<PinnedMemory> pinned_at(const State& s, const void* address) {
  for (const auto& memory : s.pinned)
    if (memory->holds(address)) return memory;
  return nullptr;
}

// Bytes of a device's memory, checked when a copy runs.
struct DeviceBytes {
  std::byte* data;
  uint8_t* initialised;
};
DeviceBytes device_bytes(State& s, CUdeviceptr address, size_t bytes) {
  Allocation& allocation = s.memory->find(address, bytes);
  const uint64_t offset = address - allocation.address;
  return {allocation.data.get() + offset, allocation.initialised.get() + offset};
}

std::byte* host_bytes(const HostBytes& host) {
  if (host.memory->released) throw Fault{"page-locked memory was freed before the copy ran"};
  return host.memory->device_view(host.begin);
}

CUresult copy_from_host(State& s, const StreamPtr& stream, CUdeviceptr to, const void* from,
                        size_t bytes) {
  Task task{.kind = Task::Kind::kCopy,
            .name = fmt::format("a copy of {} bytes from the host", bytes),
            .run = nullptr,
            .host = {}};
  const ByteRange written{to, to + bytes};
  const auto write = [&s, to, bytes](const void* source) {
    const DeviceBytes target = device_bytes(s, to, bytes);
    std::memcpy(target.data, source, bytes);
    std::memset(target.initialised, 1, bytes);
  };
  if (const auto memory = pinned_at(s, from)) {
    auto* const begin = const_cast<std::byte*>(static_cast<const std::byte*>(from));
    task.host = {HostBytes::Use::kRead, begin, bytes, memory};
    task.run = [write, written, host = task.host](uint64_t) {
      write(host_bytes(host));
      return AccessLog{{host.range()}, {written}};
    };
  } else {  // As the driver does, through a staging buffer of its own.
    if (stream->capture != nullptr) return s.refuse(*stream, "a copy from pageable memory");
    const auto* const begin = static_cast<const std::byte*>(from);
    task.run = [write, written, staged = std::vector(begin, begin + bytes)](uint64_t) {
      write(staged.data());
      return AccessLog{{}, {written}};
    };
  }
  return s.enqueue(stream, std::move(task));
}

CUresult copy_to_host(State& s, Lock& lock, const StreamPtr& stream, void* to, CUdeviceptr from,
                      size_t bytes) {
  Task task{.kind = Task::Kind::kCopy,
            .name = fmt::format("a copy of {} bytes to the host", bytes),
            .run = nullptr,
            .host = {}};
  const ByteRange read_bytes{from, from + bytes};
  const auto read = [&s, from, bytes](void* target) {
    const DeviceBytes source = device_bytes(s, from, bytes);
    const uint8_t* const end = source.initialised + bytes;
    const uint8_t* const bad = std::find<const uint8_t*>(source.initialised, end, 0);
    if (bad != end)
      throw Fault{
          fmt::format("byte {} of what it reads was never written", bad - source.initialised)};
    std::memcpy(target, source.data, bytes);
  };
  if (const auto memory = pinned_at(s, to)) {
    task.host = {HostBytes::Use::kWrite, static_cast<std::byte*>(to), bytes, memory};
    task.run = [read, read_bytes, host = task.host](uint64_t) {
      read(host_bytes(host));
      return AccessLog{{read_bytes}, {host.range()}};
    };
    return s.enqueue(stream, std::move(task));
  }
  if (stream->capture != nullptr) return s.refuse(*stream, "a copy to pageable memory");
  task.run = [read, read_bytes, to](uint64_t) {
    read(to);
    return AccessLog{{read_bytes}, {}};
  };
  const CUresult result = s.enqueue(stream, std::move(task));
  // The driver returns when pageable memory has the bytes.
  return result != CUDA_SUCCESS ? result : wait_for(s, lock, stream->device, stream->last);
}

CUresult copy_on_device(State& s, const StreamPtr& stream, CUdeviceptr to, CUdeviceptr from,
                        size_t bytes) {
  const auto run = [&s, to, from, bytes](uint64_t) {
    const DeviceBytes source = device_bytes(s, from, bytes), target = device_bytes(s, to, bytes);
    std::memmove(target.data, source.data, bytes);
    std::memmove(target.initialised, source.initialised, bytes);
    return AccessLog{{{from, from + bytes}}, {{to, to + bytes}}};
  };
  return s.enqueue(stream, {.kind = Task::Kind::kCopy,
                            .name = fmt::format("a copy of {} bytes", bytes),
                            .run = run,
                            .host = {}});
}

template <typename T>
CUresult fill(CUdeviceptr to, T value, size_t count, CUstream handle) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock&) {
    const size_t bytes = count * sizeof(T);
    if (bytes == 0 || to % sizeof(T) != 0)
      return bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    const auto run = [&s, to, value, count, bytes](uint64_t) {
      const DeviceBytes target = device_bytes(s, to, bytes);
      std::fill_n(reinterpret_cast<T*>(target.data), count, value);
      std::memset(target.initialised, 1, bytes);
      return AccessLog{{}, {{to, to + bytes}}};
    };
    return s.enqueue(stream, {.kind = Task::Kind::kCopy,
                              .name = fmt::format("a fill of {} bytes", bytes),
                              .run = run,
                              .host = {}});
  });
}

// cuStreamWaitEvent, where the stream or the event is part of a capture.
CUresult wait_in_capture(State& s, const StreamPtr& stream, const Event& event) {
  if (event.capture == nullptr) {
    stream->capture->valid = false;
    return s.reject(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                    fmt::format("{} is captured and waits for an event that is not", stream->name));
  }
  const bool is_open =
      std::find(s.captures.begin(), s.captures.end(), event.capture) != s.captures.end();
  if (!is_open) return s.reject(CUDA_ERROR_CAPTURED_EVENT, "the event's capture has ended");
  if (stream->capture != nullptr && stream->capture != event.capture) {
    stream->capture->valid = event.capture->valid = false;
    return s.reject(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the event is of another capture");
  }
  stream->capture = event.capture;
  for (const size_t node : event.frontier)
    if (std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end())
      stream->frontier.push_back(node);
  return CUDA_SUCCESS;
}

// The event of a call that looks at its last recording.
template <typename Body>
CUresult with_recorded(CUevent handle, std::string_view call, const Body& body) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device, Lock& lock) {
    const std::shared_ptr<Event> event = s.events.find(handle);
    if (event == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such event");
    if (event->capture != nullptr) {
      event->capture->valid = false;
      return s.reject(CUDA_ERROR_CAPTURED_EVENT,
                      fmt::format("{} of an event that was recorded in a capture", call));
    }
    const WorkPtr recorded = event->recorded;
    return body(s, lock, device, recorded);
  });
}

}  // namespace
}  // namespace tessera::virtual_gpu

using namespace tessera::virtual_gpu;

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    *handle = s.streams.add(s.new_stream(device, std::clamp(priority, -5, 0), blocking));
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(handle, [&](State&, const StreamPtr& stream, Lock&) {
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}

// The work goes on; the handle ends.
CUresult cuStreamDestroy(CUstream handle) {
  return with_context([&](State& s, const auto&) {
    const StreamPtr stream = s.streams.find(handle);
    if (stream == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (stream->capture != nullptr) s.end_capture(stream->capture);
    s.retire_component(stream->component);
    s.streams.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock& lock) {
    if (stream->capture != nullptr) return s.refuse(*stream, "cuStreamSynchronize");
    return wait_for(s, lock, stream->device, stream->last);
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock& lock) {
    if (stream->capture != nullptr) return s.refuse(*stream, "cuStreamQuery");
    return ask_for(s, lock, stream->device, stream->last);
  });
}

CUresult cuCtxSynchronize() {
  return with_context([&](State& s, const std::shared_ptr<Device>& device, Lock& lock) {
    CUresult result = s.check_no_capture("cuCtxSynchronize");
    std::vector<WorkPtr> last = {device->default_stream->last};
    s.streams.for_each([&](const StreamPtr& stream) {
      if (stream->device == device) last.push_back(stream->last);
    });
    for (const WorkPtr& work : last)
      if (result == CUDA_SUCCESS) result = wait_for(s, lock, device, work);
    return result;
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock&) {
    const std::shared_ptr<Event> event = s.events.find(event_handle);
    if (event == nullptr) return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such event");
    if (stream->capture != nullptr || event->capture != nullptr)
      return wait_in_capture(s, stream, *event);
    if (event->recorded == nullptr) {
      s.warnings += fmt::format("{} waits for an event that was never recorded\n", stream->name);
      return CUDA_SUCCESS;
    }
    return s.enqueue(stream, {.name = "a wait for an event", .run = nullptr, .host = {}},
                     {&event->recorded, 1});
  });
}

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    auto event = std::make_shared<Event>();
    event->device = device;
    event->flags = flags;
    *handle = s.events.add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy(CUevent handle) {
  return with_context([&](State& s, const auto&) {
    return s.events.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  return with_stream(stream_handle, [&](State& s, const StreamPtr& stream, Lock&) {
    const std::shared_ptr<Event> event = s.events.find(handle);
    if (event == nullptr || event->device != stream->device)
      return s.reject(
          CUDA_ERROR_INVALID_HANDLE,
          fmt::format("recording on {} an event of another GPU, or none", stream->name));
    event->capture = stream->capture;
    event->frontier = stream->frontier;
    event->recorded = nullptr;
    if (stream->capture != nullptr) return CUDA_SUCCESS;
    event->recorded =
        s.submit(stream, {.name = "recording an event", .run = nullptr, .host = {}}, {});
    return CUDA_SUCCESS;
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return with_recorded(handle, "cuEventSynchronize",
                       [](State& s, Lock& lock, const auto& device, const WorkPtr& recorded) {
                         return wait_for(s, lock, device, recorded);
                       });
}

CUresult cuEventQuery(CUevent handle) {
  return with_recorded(handle, "cuEventQuery",
                       [](State& s, Lock& lock, const auto& device, const WorkPtr& recorded) {
                         const CUresult refused = s.check_no_capture("cuEventQuery");
                         return refused != CUDA_SUCCESS ? refused
                                                        : ask_for(s, lock, device, recorded);
                       });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return with_context([&](State& s, const auto&) {
    const std::shared_ptr<Event> first = s.events.find(begin), last = s.events.find(end);
    if (first == nullptr || last == nullptr)
      return s.reject(CUDA_ERROR_INVALID_HANDLE, "no such event");
    if (((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) != 0 ||
        first->recorded == nullptr || last->recorded == nullptr)
      return s.reject(CUDA_ERROR_INVALID_HANDLE,
                      "cuEventElapsedTime: an event was never recorded, or has no time");
    if (!first->recorded->done || !last->recorded->done) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>(last->recorded->finished_ms - first->recorded->finished_ms);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream handle) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock&) {
    return bytes == 0 ? CUDA_SUCCESS : copy_from_host(s, stream, to, from, bytes);
  });
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream handle) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock& lock) {
    return bytes == 0 ? CUDA_SUCCESS : copy_to_host(s, lock, stream, to, from, bytes);
  });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock&) {
    return bytes == 0 ? CUDA_SUCCESS : copy_on_device(s, stream, to, from, bytes);
  });
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream handle) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock&) {
    if (bytes == 0) return CUDA_SUCCESS;
    const auto is_in = [&](CUcontext context, CUdeviceptr address) {
      const auto allocation = s.allocation_at(address);
      return allocation && s.device_of(context) == allocation->device;
    };
    if (!is_in(to_context, to) || !is_in(from_context, from))
      return s.reject(CUDA_ERROR_INVALID_VALUE,
                      "cuMemcpyPeerAsync: memory that is not of the context given");
    return copy_on_device(s, stream, to, from, bytes);
  });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle) {
  return fill(to, value, count, handle);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream handle) {
  return fill(to, value, count, handle);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return with_stream(handle, [&](State& s, const StreamPtr& stream, Lock&) {
    const auto run = [function, data](uint64_t) {
      function(data);
      return AccessLog{};
    };
    return s.enqueue(
        stream,
        {.kind = Task::Kind::kHostFunction, .name = "a host function", .run = run, .host = {}});
  });
}
