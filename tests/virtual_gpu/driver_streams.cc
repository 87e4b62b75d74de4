// SPDX-License-Identifier: Apache-2.0
// Driver functions: streams, events, copies, host functions. There is no default stream.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"

namespace tessera::virtual_gpu {
namespace {

// Throws unless the work is done.
void ask(const Call& c, const WorkPtr& work) {
  if (work == nullptr) return;
  if (!work->done) c.s.run_one(c.lock);
  if (!work->done && c.device->error == CUDA_SUCCESS) throw Refusal{CUDA_ERROR_NOT_READY, ""};
  if (work->done) c.s.wait(c.lock, work);
}

std::shared_ptr<PinnedMemory> pinned_at(const State& s, const void* address) {
  for (const auto& memory : s.pinned)
    if (memory->holds(address)) return memory;
  return nullptr;
}

// Bytes of a device's memory, checked while a copy runs.
struct DeviceBytes {
  DeviceBytes(State& s, CUdeviceptr address, size_t bytes) {
    Allocation& allocation = s.memory->find(address, bytes);
    data = allocation.data.get() + (address - allocation.address);
    initialised = allocation.initialised.get() + (address - allocation.address);
  }
  std::byte* data;
  uint8_t* initialised;
};

std::byte* host_bytes(const HostBytes& host) {
  if (host.memory->released) throw Fault{"page-locked memory was freed before the copy ran"};
  return host.memory->device_view(host.begin);
}

// Copies pageable memory like the driver: within the call, through a separate buffer.
Task copy_from_host(State& s, const Stream& stream, CUdeviceptr to, const std::byte* from,
                    size_t bytes) {
  const auto write = [&s, to, bytes](const std::byte* source) {
    const DeviceBytes target(s, to, bytes);
    std::memcpy(target.data, source, bytes);
    std::memset(target.initialised, 1, bytes);
    return AccessLog{{}, {{to, to + bytes}}};
  };
  Task task{Task::Kind::kCopy, fmt::format("a copy of {} bytes from the host", bytes)};
  if (const auto memory = pinned_at(s, from)) {
    task.host = {HostBytes::Use::kRead, const_cast<std::byte*>(from), bytes, memory};
    task.run = [write, host = task.host](uint64_t) {
      AccessLog log = write(host_bytes(host));
      log.reads = {host.range()};
      return log;
    };
    return task;
  }
  State::check_not_captured(stream, "a copy from pageable memory");
  ++s.pageable_copies;
  task.run = [write, staged = std::vector(from, from + bytes)](uint64_t) {
    return write(staged.data());
  };
  return task;
}

Task copy_to_host(State& s, const Stream& stream, std::byte* to, CUdeviceptr from, size_t bytes) {
  const auto read = [&s, from, bytes](std::byte* target) {
    const DeviceBytes source(s, from, bytes);
    const uint8_t* const end = source.initialised + bytes;
    const uint8_t* const bad = std::find<const uint8_t*>(source.initialised, end, 0);
    if (bad != end)
      throw Fault{
          fmt::format("byte {} of what it reads was never written", bad - source.initialised)};
    std::memcpy(target, source.data, bytes);
    return AccessLog{{{from, from + bytes}}, {}};
  };
  Task task{Task::Kind::kCopy, fmt::format("a copy of {} bytes to the host", bytes)};
  task.bytes_to_host = bytes;
  if (const auto memory = pinned_at(s, to)) {
    task.host = {HostBytes::Use::kWrite, to, bytes, memory};
    task.run = [read, host = task.host](uint64_t) {
      AccessLog log = read(host_bytes(host));
      log.writes = {host.range()};
      return log;
    };
    return task;
  }
  State::check_not_captured(stream, "a copy to pageable memory");
  ++s.pageable_copies;
  task.run = [read, to](uint64_t) { return read(to); };
  return task;
}

Task copy_on_device(State& s, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  const auto run = [&s, to, from, bytes](uint64_t) {
    const DeviceBytes source(s, from, bytes), target(s, to, bytes);
    std::memmove(target.data, source.data, bytes);
    std::memmove(target.initialised, source.initialised, bytes);
    return AccessLog{{{from, from + bytes}}, {{to, to + bytes}}};
  };
  return {Task::Kind::kCopy, fmt::format("a copy of {} bytes", bytes), run};
}

template <typename T>
CUresult fill(CUdeviceptr to, T value, size_t count, CUstream handle) {
  return call([&](const Call& c) {
    const size_t bytes = count * sizeof(T);
    if (to % sizeof(T) != 0) throw Refusal{CUDA_ERROR_INVALID_VALUE, "a fill that is not aligned"};
    const auto run = [&s = c.s, to, value, count, bytes](uint64_t) {
      const DeviceBytes target(s, to, bytes);
      std::fill_n(reinterpret_cast<T*>(target.data), count, value);
      std::memset(target.initialised, 1, bytes);
      return AccessLog{{}, {{to, to + bytes}}};
    };
    const StreamPtr stream = c.s.streams.at(handle);
    if (bytes == 0) return;
    c.s.enqueue(stream, {Task::Kind::kCopy, fmt::format("a fill of {} bytes", bytes), run});
  });
}

// cuStreamWaitEvent if the stream or the event is part of a capture.
void wait_in_capture(const State& s, Stream& stream, const Event& event) {
  if (event.capture == nullptr) {
    stream.capture->valid = false;
    throw Refusal{CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                  stream.name + " is captured and waits for an event that is not"};
  }
  if (std::find(s.captures.begin(), s.captures.end(), event.capture) == s.captures.end())
    throw Refusal{CUDA_ERROR_CAPTURED_EVENT, "the event's capture has ended"};
  if (stream.capture != nullptr && stream.capture != event.capture) {
    stream.capture->valid = event.capture->valid = false;
    throw Refusal{CUDA_ERROR_STREAM_CAPTURE_MERGE, "the event is of another capture"};
  }
  stream.capture = event.capture;
  std::set<size_t> nodes(stream.frontier.begin(), stream.frontier.end());
  nodes.insert(event.frontier.begin(), event.frontier.end());
  stream.frontier.assign(nodes.begin(), nodes.end());
}

// Returns the work of an event's last recording.
WorkPtr recorded(const Call& c, CUevent handle, const char* call) {
  const std::shared_ptr<Event> event = c.s.events.at(handle);
  if (event->capture == nullptr) return event->recorded;
  event->capture->valid = false;
  throw Refusal{CUDA_ERROR_CAPTURED_EVENT,
                fmt::format("{} of an event that was recorded in a capture", call)};
}

}  // namespace
}  // namespace tessera::virtual_gpu

using namespace tessera::virtual_gpu;

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  return call([&](const Call& c) {
    if (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "unknown flags of a stream"};
    auto stream = std::make_shared<Stream>();
    stream->device = c.device;
    stream->name = fmt::format("stream {} of GPU {}", ++c.device->streams_made, c.device->ordinal);
    stream->priority = std::clamp(priority, -5, 0);
    stream->component = c.s.new_component();
    *handle = c.s.streams.add(std::move(stream));
  });
}

// Destroys the handle only; submitted work still runs.
CUresult cuStreamDestroy(CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.remove(handle);
    if (stream->capture != nullptr) stream->capture->valid = false;
    if (stream->capture != nullptr && stream->capture->origin == stream)
      c.s.end_capture(stream->capture);
    stream->capture = nullptr;
    c.s.retire_component(stream->component);
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    c.s.check_not_captured(*stream, "cuStreamSynchronize");
    c.s.wait(c.lock, stream->last);
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    c.s.check_not_captured(*stream, "cuStreamQuery");
    ask(c, stream->last);
  });
}

CUresult cuCtxSynchronize() {
  return call([&](const Call& c) {
    c.s.check_no_capture("cuCtxSynchronize");
    std::vector<WorkPtr> last;
    c.s.streams.for_each([&](const StreamPtr& stream) {
      if (stream->device == c.device) last.push_back(stream->last);
    });
    for (const WorkPtr& work : last) c.s.wait(c.lock, work);
  });
}

// Supports only page-locked host memory, at its host address. The host may read it at any time.
CUresult cuStreamWriteValue32(CUstream handle, CUdeviceptr to, cuuint32_t value, unsigned flags) {
  return call([&](const Call& c) {
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT)
      throw Refusal{
          CUDA_ERROR_INVALID_VALUE,
          "cuStreamWriteValue32_v2 does not support CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER"};
    const auto memory = pinned_at(c.s, reinterpret_cast<const void*>(to));
    if (memory == nullptr || to % sizeof(value) != 0)
      throw Refusal{CUDA_ERROR_INVALID_VALUE,
                    "cuStreamWriteValue32 of what is not a word of page-locked memory"};
    const auto write = [memory, to, value](uint64_t) {
      if (memory->released) throw Fault{"page-locked memory was freed before a word was written"};
      std::memcpy(memory->device_view(reinterpret_cast<const void*>(to)), &value, sizeof(value));
      return AccessLog{};
    };
    c.s.enqueue(c.s.streams.at(handle), {Task::Kind::kMemory, "cuStreamWriteValue32", write});
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  return call([&](const Call& c) {
    if (flags != CU_EVENT_WAIT_DEFAULT)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "flags of a wait that the virtual GPU lacks"};
    const StreamPtr stream = c.s.streams.at(handle);
    const std::shared_ptr<Event> event = c.s.events.at(event_handle);
    if (stream->capture != nullptr || event->capture != nullptr) {
      wait_in_capture(c.s, *stream, *event);
    } else if (event->recorded == nullptr) {
      c.s.warnings += stream->name + " waits for an event that was never recorded\n";
    } else {
      c.s.submit(stream, {Task::Kind::kMark, "a wait for an event"}, {event->recorded});
    }
  });
}

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return call([&](const Call& c) {
    constexpr unsigned kKnown =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    const bool lacks_untimed =
        (flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)) == CU_EVENT_INTERPROCESS;
    if ((flags & ~kKnown) != 0 || lacks_untimed)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "flags of an event that do not go together"};
    *handle = c.s.events.add(std::make_shared<Event>(Event{c.device, flags, nullptr, nullptr, {}}));
  });
}

CUresult cuEventDestroy(CUevent handle) {
  return call([&](const Call& c) { c.s.events.remove(handle); });
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(stream_handle);
    const std::shared_ptr<Event> event = c.s.events.at(handle);
    if (event->device != stream->device)
      throw Refusal{CUDA_ERROR_INVALID_HANDLE, stream->name + " records an event of another GPU"};
    event->capture = stream->capture;
    event->frontier = stream->frontier;
    event->recorded = stream->capture != nullptr
                          ? nullptr
                          : c.s.submit(stream, {Task::Kind::kMark, "recording an event"});
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return call([&](const Call& c) { c.s.wait(c.lock, recorded(c, handle, "cuEventSynchronize")); });
}

CUresult cuEventQuery(CUevent handle) {
  return call([&](const Call& c) {
    const WorkPtr work = recorded(c, handle, "cuEventQuery");
    c.s.check_no_capture("cuEventQuery");
    ask(c, work);
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return call([&](const Call& c) {
    const std::shared_ptr<Event> first = c.s.events.at(begin), last = c.s.events.at(end);
    if (((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) != 0 ||
        first->recorded == nullptr || last->recorded == nullptr)
      throw Refusal{CUDA_ERROR_INVALID_HANDLE, "an event was never recorded, or has no time"};
    if (first->device != last->device)
      throw Refusal{CUDA_ERROR_INVALID_HANDLE, "the time between events of two GPUs"};
    if (!first->recorded->done || !last->recorded->done) throw Refusal{CUDA_ERROR_NOT_READY, ""};
    *milliseconds = static_cast<float>(last->recorded->finished_ms - first->recorded->finished_ms);
  });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    if (bytes == 0) return;
    const auto* const source = static_cast<const std::byte*>(from);
    c.s.enqueue(stream, copy_from_host(c.s, *stream, to, source, bytes));
  });
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    if (bytes == 0) return;
    const Task task = copy_to_host(c.s, *stream, static_cast<std::byte*>(to), from, bytes);
    c.s.enqueue(stream, task);
    // The driver returns after the copy to pageable memory.
    if (task.host.use == HostBytes::Use::kNone) c.s.wait(c.lock, stream->last);
  });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    if (bytes > 0) c.s.enqueue(stream, copy_on_device(c.s, to, from, bytes));
  });
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    if (bytes == 0) return;
    const auto is_in = [&](CUcontext context, CUdeviceptr address) {
      const auto allocation = c.s.allocation_at(address);
      return allocation && c.s.device_of(context) == allocation->device;
    };
    if (!is_in(to_context, to) || !is_in(from_context, from))
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "a peer copy of memory that is not of its context"};
    c.s.enqueue(stream, copy_on_device(c.s, to, from, bytes));
  });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle) {
  return fill(to, value, count, handle);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream handle) {
  return fill(to, value, count, handle);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return call([&](const Call& c) {
    const auto run = [function, data](uint64_t) {
      function(data);
      return AccessLog{};
    };
    c.s.enqueue(c.s.streams.at(handle), {Task::Kind::kHostFunction, "a host function", run});
  });
}
