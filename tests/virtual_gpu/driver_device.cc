// SPDX-License-Identifier: Apache-2.0
// Driver functions: start, errors, GPUs and their attributes, contexts, memory.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"
#include "tests/virtual_gpu/gpu_kind.h"

namespace tessera::virtual_gpu {
namespace {

struct ErrorText {
  const char *name, *text;
};

#define TESSERA_ERROR(name, text)        \
  {                                      \
    CUDA_##name, { "CUDA_" #name, text } \
  }
const std::map<CUresult, ErrorText> kErrors = {
    TESSERA_ERROR(SUCCESS, "no error"),
    TESSERA_ERROR(ERROR_INVALID_VALUE, "invalid argument"),
    TESSERA_ERROR(ERROR_OUT_OF_MEMORY, "out of memory"),
    TESSERA_ERROR(ERROR_NOT_INITIALIZED, "initialization error"),
    TESSERA_ERROR(ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    TESSERA_ERROR(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    TESSERA_ERROR(ERROR_INVALID_DEVICE, "invalid device ordinal"),
    TESSERA_ERROR(ERROR_INVALID_CONTEXT, "invalid device context"),
    TESSERA_ERROR(ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for the device"),
    TESSERA_ERROR(ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    TESSERA_ERROR(ERROR_UNSUPPORTED_PTX_VERSION, "the PTX is of an unsupported toolchain"),
    TESSERA_ERROR(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    TESSERA_ERROR(ERROR_INVALID_HANDLE, "invalid resource handle"),
    TESSERA_ERROR(ERROR_NOT_FOUND, "named symbol not found"),
    TESSERA_ERROR(ERROR_NOT_READY, "device not ready"),
    TESSERA_ERROR(ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    TESSERA_ERROR(ERROR_FUNCTION_NOT_LOADED, "function not loaded"),
    TESSERA_ERROR(ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported"),
    TESSERA_ERROR(ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    TESSERA_ERROR(ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    TESSERA_ERROR(ERROR_NOT_PERMITTED, "operation not permitted"),
    TESSERA_ERROR(ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted when a stream is capturing"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_INVALIDATED, "a previous error during capture"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_MERGE, "would merge separate captures"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended where it began"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_ISOLATION, "dependency on uncaptured work"),
    TESSERA_ERROR(ERROR_CAPTURED_EVENT, "event last recorded in a capturing stream"),
};
#undef TESSERA_ERROR

CUresult error_text(CUresult error, const char* ErrorText::*part, const char** result) {
  const auto found = kErrors.find(error);
  *result = found != kErrors.end() ? found->second.*part : nullptr;
  return found != kErrors.end() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::map<CUdevice_attribute, int> attributes_of(const GpuKind& kind, int capability) {
  return {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, capability / 10},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, capability % 10},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kThreadsPerBlock},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kSharedDefault},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, kind.shared_of_block()},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, kSharedReserved},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, kind.shared_of_processor << 10},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, kRegistersOfProcessor},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, kRegistersOfProcessor},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, kind.threads_of_processor},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, kind.blocks_of_processor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, kind.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, kind.clock_mhz * 1000},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, kind.memory_mhz * 1000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, kind.bus_bits},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, kind.l2_mib << 20},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1}};
}

// A call that needs cuInit but no context.
template <typename Body>
CUresult with_driver(const Body& body) {
  State& s = state();
  const Lock lock(s.mutex);
  return s.initialised ? body(s) : CUDA_ERROR_NOT_INITIALIZED;
}
template <typename Body>
CUresult with_device(CUdevice ordinal, const Body& body) {
  return with_driver([&](State& s) {
    if (ordinal < 0 || static_cast<size_t>(ordinal) >= s.devices.size())
      return CUDA_ERROR_INVALID_DEVICE;
    body(s, *s.devices[static_cast<size_t>(ordinal)]);
    return CUDA_SUCCESS;
  });
}

CUcontext context_of(const Device& device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device.ordinal) + 1);
}

// Describes what the program has not released on a GPU.
std::string left_on(const State& s, const DevicePtr& device) {
  size_t streams = 0, modules = 0;
  s.streams.for_each([&](const auto& each) { streams += each->device == device ? 1 : 0; });
  s.modules.for_each([&](const auto& each) { modules += each->device == device ? 1 : 0; });
  if (streams + modules + device->allocations.size() == 0) return "";
  return fmt::format("GPU {}: {} streams, {} modules and {} allocations are left\n",
                     device->ordinal, streams, modules, device->allocations.size());
}

void end_context(State& s, Lock& lock, const DevicePtr& device) {
  std::vector<WorkPtr> last;
  s.streams.for_each([&](const StreamPtr& stream) {
    if (stream->device != device) return;
    last.push_back(stream->last);
    s.retire_component(stream->component);
  });
  for (const WorkPtr& work : last) s.wait(lock, work);
  s.warnings += left_on(s, device);
  const auto is_here = [&](const auto& object) { return object.device == device; };
  s.functions.remove_if([&](const LoadedFunction& f) { return is_here(*f.module); });
  s.executables.remove_if(is_here);
  s.streams.remove_if(is_here);
  s.events.remove_if(is_here);
  s.modules.remove_if(is_here);
  for (const auto& [address, bytes] : device->allocations) s.memory->release(address);
  *device = Device{.ordinal = device->ordinal};
}

CUdeviceptr allocate(const Call& c, size_t bytes) {
  const uint64_t used = c.s.memory->used(c.device->ordinal), all = c.s.config.memory;
  if (bytes == 0) throw Refusal{CUDA_ERROR_INVALID_VALUE, "allocating 0 bytes"};
  if (bytes > all - std::min(used, all) || c.s.plan_says("out_of_memory"))
    throw Refusal{CUDA_ERROR_OUT_OF_MEMORY,
                  fmt::format("GPU {}: allocating {} bytes; {} of {} are used", c.device->ordinal,
                              bytes, used, all)};
  const CUdeviceptr address = c.s.memory->allocate(c.device->ordinal, bytes);
  c.device->allocations[address] = bytes;
  return address;
}

struct ExitReport {
  ~ExitReport() {
    const Lock lock(state().mutex);
    state().report_touched();
    for (const DevicePtr& device : state().devices)
      if (const std::string left = left_on(state(), device); !left.empty())
        fmt::print(stderr, "virtual GPU: at exit: {}", left);
  }
};
const ExitReport kExitReport;

}  // namespace
}  // namespace tessera::virtual_gpu

using namespace tessera::virtual_gpu;

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  const Lock lock(s.mutex);
  if (s.memory == nullptr) s.restart();
  s.initialised = !s.devices.empty();
  return s.initialised ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

// NVRTC loads libcuda itself and queries it for a cache of compiled programs. Without this function
// it crashes; after CUDA_ERROR_NOT_FOUND it compiles without a cache.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuDriverGetVersion(int* version) {
  State& s = state();
  const Lock lock(s.mutex);
  if (s.memory == nullptr) s.restart();
  *version = static_cast<int>(s.config.cuda_version);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  return error_text(error, &ErrorText::name, name);
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  return error_text(error, &ErrorText::text, text);
}

CUresult cuDeviceGetCount(int* count) {
  return with_driver([&](State& s) {
    *count = static_cast<int>(s.devices.size());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(ordinal, [&](State&, Device& found) { *device = found.ordinal; });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](State&, Device&) {
    std::snprintf(name, static_cast<size_t>(length), "Virtual GPU");
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  CUresult result = CUDA_SUCCESS;
  const CUresult asked = with_device(ordinal, [&](State& s, Device&) {
    const auto attributes =
        attributes_of(gpu_kind(s.config.capability), static_cast<int>(s.config.capability));
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) {
      result = CUDA_ERROR_INVALID_VALUE;
    } else {
      *value = found->second;
    }
  });
  return asked != CUDA_SUCCESS ? asked : result;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice ordinal) {
  return with_device(ordinal, [&](State& s, Device&) { *bytes = s.config.memory; });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  if (length < 13) return CUDA_ERROR_INVALID_VALUE;
  return with_device(ordinal, [&](State&, Device&) {
    std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", ordinal + 1);
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
  const CUresult result = with_device(to, [](State&, Device&) {});
  if (result != CUDA_SUCCESS) return result;
  return with_device(
      from, [&](State& s, Device&) { *can = from != to && s.config.peer_access != 0 ? 1 : 0; });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return with_device(ordinal, [&](State&, Device& device) {
    ++device.retained;
    *context = context_of(device);
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  State& s = state();
  Lock lock(s.mutex);
  const DevicePtr device = s.device_of(reinterpret_cast<CUcontext>(uintptr_t(ordinal) + 1));
  if (device == nullptr || device->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->retained == 0) end_context(s, lock, device);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return with_driver([&](State& s) {
    const DevicePtr device = s.device_of(context);
    if (context != nullptr && (device == nullptr || device->retained == 0))
      return CUDA_ERROR_INVALID_CONTEXT;
    current_device = device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current_device != nullptr ? context_of(*current_device) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return call([&](const Call& c) {
    if (flags != 0) throw Refusal{CUDA_ERROR_INVALID_VALUE, "flags of cuCtxEnablePeerAccess"};
    if (c.s.config.peer_access == 0)
      throw Refusal{CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "the GPUs cannot read each other's memory"};
    const DevicePtr other = c.s.device_of(peer);
    if (other == nullptr || other == c.device || other->retained == 0)
      throw Refusal{CUDA_ERROR_INVALID_CONTEXT, "peer access needs the context of another GPU"};
    if (!c.device->peers.insert(other->ordinal).second)
      throw Refusal{CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, ""};
  });
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return call([&](const Call& c) {
    *total = c.s.config.memory;
    *free = *total - std::min(*total, c.s.memory->used(c.device->ordinal));
  });
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return call([&](const Call& c) {
    c.s.check_no_capture("cuMemAlloc");
    *address = allocate(c, bytes);
  });
}

CUresult cuMemFree(CUdeviceptr address) {
  return call([&](const Call& c) {
    c.s.check_no_capture("cuMemFree");
    if (address != 0) c.s.release(address);
  });
}

// The allocation is a write in the order of the stream.
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    c.s.check_not_captured(*stream, "cuMemAllocAsync");
    *address = allocate(c, bytes);
    const ByteRange all{*address, *address + bytes};
    c.s.enqueue(stream, {Task::Kind::kMemory, fmt::format("cuMemAllocAsync of {} bytes", bytes),
                         [all](uint64_t) {
                           return AccessLog{{}, {all}};
                         }});
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return call([&](const Call& c) {
    const StreamPtr stream = c.s.streams.at(handle);
    c.s.check_not_captured(*stream, "cuMemFreeAsync");
    const auto allocation = c.s.allocation_at(address);
    if (!allocation || allocation->bytes.begin != address)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync of no allocation"};
    const auto free = [&s = c.s, allocation = *allocation](uint64_t) {
      const Lock lock(s.mutex);
      s.memory->release(allocation.bytes.begin);
      allocation.device->allocations.erase(allocation.bytes.begin);
      return AccessLog{{}, {allocation.bytes}};
    };
    c.s.enqueue(stream, {Task::Kind::kMemory, "cuMemFreeAsync", free});
  });
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return call([&](const Call& c) {
    constexpr unsigned kKnown =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if ((flags & ~kKnown) != 0)
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "unknown flags of cuMemHostAlloc"};
    if (bytes == 0) throw Refusal{CUDA_ERROR_INVALID_VALUE, "page-locking 0 bytes"};
    c.s.check_no_capture("cuMemHostAlloc");
    c.s.pinned.push_back(std::make_shared<PinnedMemory>(bytes));
    *memory = c.s.pinned.back()->host();
  });
}

CUresult cuMemFreeHost(void* memory) {
  return call([&](const Call& c) {
    c.s.check_no_capture("cuMemFreeHost");
    const auto found = std::find_if(c.s.pinned.begin(), c.s.pinned.end(),
                                    [&](const auto& each) { return each->host() == memory; });
    if (found == c.s.pinned.end())
      throw Refusal{CUDA_ERROR_INVALID_VALUE, "cuMemFreeHost of what is not page-locked memory"};
    for (const State::HostUse& use : c.s.host_uses)
      if (use.bytes.memory == *found)
        c.s.fail(*use.device, CUDA_ERROR_LAUNCH_FAILED,
                 fmt::format("cuMemFreeHost of memory that {} uses, and the host has not waited",
                             *use.stamp.name));
    (*found)->released = true;
    c.s.pinned.erase(found);
  });
}
