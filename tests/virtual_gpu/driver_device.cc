// SPDX-License-Identifier: Apache-2.0
// Driver functions: start, errors, GPUs and their attributes (those of an H100), contexts, memory.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tests/virtual_gpu/device_state.h"

namespace tessera::virtual_gpu {
namespace {

struct ErrorText {
  CUresult code;
  const char *name, *text;
};

#define TESSERA_ERROR(name, text) \
  { CUDA_##name, "CUDA_" #name, text }
constexpr ErrorText kErrors[] = {
    TESSERA_ERROR(SUCCESS, "no error"),
    TESSERA_ERROR(ERROR_INVALID_VALUE, "invalid argument"),
    TESSERA_ERROR(ERROR_OUT_OF_MEMORY, "out of memory"),
    TESSERA_ERROR(ERROR_NOT_INITIALIZED, "initialization error"),
    TESSERA_ERROR(ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    TESSERA_ERROR(ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    TESSERA_ERROR(ERROR_INVALID_DEVICE, "invalid device ordinal"),
    TESSERA_ERROR(ERROR_INVALID_CONTEXT, "invalid device context"),
    TESSERA_ERROR(ERROR_NO_BINARY_FOR_GPU,
                  "no kernel image is available for execution on the device"),
    TESSERA_ERROR(ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    TESSERA_ERROR(ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    TESSERA_ERROR(ERROR_INVALID_HANDLE, "invalid resource handle"),
    TESSERA_ERROR(ERROR_NOT_FOUND, "named symbol not found"),
    TESSERA_ERROR(ERROR_NOT_READY, "device not ready"),
    TESSERA_ERROR(ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    TESSERA_ERROR(ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    TESSERA_ERROR(ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    TESSERA_ERROR(ERROR_NOT_PERMITTED, "operation not permitted"),
    TESSERA_ERROR(ERROR_NOT_SUPPORTED, "operation not supported"),
    TESSERA_ERROR(ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  "operation not permitted when stream is capturing"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_INVALIDATED,
                  "operation failed due to a previous error during capture"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_MERGE,
                  "operation would result in a merge of separate capture sequences"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_UNMATCHED,
                  "capture was not ended in the same stream as it began"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_ISOLATION,
                  "dependency created on uncaptured work in another stream"),
    TESSERA_ERROR(ERROR_STREAM_CAPTURE_IMPLICIT,
                  "operation would make the legacy stream depend on a capturing blocking stream"),
    TESSERA_ERROR(ERROR_CAPTURED_EVENT,
                  "operation not permitted on an event last recorded in a capturing stream"),
};
#undef TESSERA_ERROR

const ErrorText* find_error(CUresult code) {
  const auto* const found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                         [&](const ErrorText& each) { return each.code == code; });
  return found == std::end(kErrors) ? nullptr : found;
}

const std::map<int, int> kAttributes = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1 << 10},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
};

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
    if (ordinal < 0 || ordinal >= s.config.gpus) return CUDA_ERROR_INVALID_DEVICE;
    return body(s, s.devices[static_cast<size_t>(ordinal)]);
  });
}

CUcontext context_of(const Device& device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device.ordinal) + 1);
}

// Objects that the program left, as a warning.
void report_left(State& s, const Device& device, size_t streams, size_t events, size_t modules) {
  if (streams + events + modules + device.allocations.size() == 0) return;
  s.warnings += fmt::format(
      "GPU {}: {} streams, {} events, {} modules and {} allocations left when its context ended\n",
      device.ordinal, streams, events, modules, device.allocations.size());
}

void end_context(State& s, Lock& lock, const std::shared_ptr<Device>& device) {
  while (s.run_one(lock)) continue;
  const auto is_here = [&](const auto& object) { return object.device == device; };
  s.streams.for_each([&](const StreamPtr& stream) {
    if (is_here(*stream)) s.retire_component(stream->component);
  });
  s.retire_component(device->default_stream->component);
  s.functions.remove_if([&](const LoadedFunction& f) { return f.module->device == device; });
  s.executables.remove_if(is_here);
  const size_t streams = s.streams.remove_if(is_here), events = s.events.remove_if(is_here);
  report_left(s, *device, streams, events, s.modules.remove_if(is_here));
  for (const auto& [address, bytes] : device->allocations) s.memory->release(address);
  device->allocations.clear();
  device->peers.clear();
  device->error = CUDA_SUCCESS;
}

CUresult allocate(State& s, Device& device, size_t bytes, CUdeviceptr* address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t used = s.memory->used(device.ordinal);
  if (bytes > s.config.memory - std::min(used, s.config.memory) || s.plan_says("out_of_memory"))
    return s.reject(CUDA_ERROR_OUT_OF_MEMORY,
                    fmt::format("GPU {}: allocating {} bytes; {} of {} are used", device.ordinal,
                                bytes, used, s.config.memory));
  *address = s.memory->allocate(device.ordinal, bytes);
  device.allocations[*address] = bytes;
  return CUDA_SUCCESS;
}

// What is left when the process ends.
struct ExitReport {
  ~ExitReport() {
    State& s = state();
    const Lock lock(s.mutex);
    for (const auto& device : s.devices) {
      size_t streams = 0, modules = 0;
      s.streams.for_each([&](const auto& each) { streams += each->device == device ? 1 : 0; });
      s.modules.for_each([&](const auto& each) { modules += each->device == device ? 1 : 0; });
      if (streams + modules > 0)
        fmt::print(stderr, "virtual GPU: at exit: GPU {} has {} streams and {} modules\n",
                   device->ordinal, streams, modules);
    }
  }
};
const ExitReport kExitReport;

}  // namespace
}  // namespace tessera::virtual_gpu

using namespace tessera::virtual_gpu;

CUresult cuInit(unsigned flags) {
  State& s = state();
  const Lock lock(s.mutex);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (s.memory == nullptr) s.restart();
  if (s.config.gpus == 0) return CUDA_ERROR_NO_DEVICE;
  s.initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  State& s = state();
  const Lock lock(s.mutex);
  if (s.memory == nullptr) s.restart();
  *version = s.config.cuda_version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  const ErrorText* const found = find_error(error);
  *name = found != nullptr ? found->name : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* const found = find_error(error);
  *text = found != nullptr ? found->text : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int* count) {
  return with_driver([&](State& s) { return *count = s.config.gpus, CUDA_SUCCESS; });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(ordinal, [&](State&, const auto&) { return *device = ordinal, CUDA_SUCCESS; });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](State&, const auto&) {
    std::snprintf(name, static_cast<size_t>(length), "Virtual GPU");
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  return with_device(ordinal, [&](State& s, const auto&) {
    const auto found = kAttributes.find(attribute);
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
      *value = s.config.capability / 10;
    } else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
      *value = s.config.capability % 10;
    } else if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
      *value = ordinal + 1;
    } else if (found != kAttributes.end()) {
      *value = found->second;
    } else {
      return s.reject(CUDA_ERROR_INVALID_VALUE,
                      fmt::format("unknown device attribute {}", static_cast<int>(attribute)));
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice ordinal) {
  return with_device(ordinal,
                     [&](State& s, const auto&) { return *bytes = s.config.memory, CUDA_SUCCESS; });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](State&, const auto&) {
    std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", ordinal + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
  return with_device(from, [&](State& s, const auto&) {
    if (to < 0 || to >= s.config.gpus) return CUDA_ERROR_INVALID_DEVICE;
    *can = from != to ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return with_device(ordinal, [&](State& s, const std::shared_ptr<Device>& device) {
    if (device->retained++ == 0) device->default_stream = s.new_stream(device, 0, true);
    *context = context_of(*device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  State& s = state();
  Lock lock(s.mutex);
  if (ordinal < 0 || ordinal >= s.config.gpus) return CUDA_ERROR_INVALID_DEVICE;
  const std::shared_ptr<Device> device = s.devices[static_cast<size_t>(ordinal)];
  if (device->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->retained == 0) end_context(s, lock, device);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return with_driver([&](State& s) {
    const std::shared_ptr<Device> device = context != nullptr ? s.device_of(context) : nullptr;
    if (context != nullptr && (device == nullptr || device->retained == 0))
      return s.reject(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent: not a live context");
    current_device = device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return with_driver([&](State&) {
    *context = current_device != nullptr ? context_of(*current_device) : nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const std::shared_ptr<Device> other = s.device_of(peer);
    if (other == nullptr || other == device || other->retained == 0)
      return s.reject(CUDA_ERROR_INVALID_CONTEXT, "cuCtxEnablePeerAccess: not another GPU's");
    return device->peers.insert(other->ordinal).second ? CUDA_SUCCESS
                                                       : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    *total = s.config.memory;
    *free = s.config.memory - std::min(s.config.memory, s.memory->used(device->ordinal));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const CUresult refused = s.check_no_capture("cuMemAlloc");
    return refused != CUDA_SUCCESS ? refused : allocate(s, *device, bytes, address);
  });
}

CUresult cuMemFree(CUdeviceptr address) {
  return with_context([&](State& s, const std::shared_ptr<Device>&) {
    const CUresult refused = s.check_no_capture("cuMemFree");
    return refused != CUDA_SUCCESS || address == 0 ? refused : s.release(address);
  });
}

// The allocation begins to exist in the order of the stream, as a write.
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const StreamPtr stream = find_stream(s, device, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr) return s.refuse(*stream, "cuMemAllocAsync");
    const CUresult result = allocate(s, *device, bytes, address);
    if (result != CUDA_SUCCESS) return result;
    const ByteRange all{*address, *address + bytes};
    return s.enqueue(stream, {.kind = Task::Kind::kMemory,
                              .name = fmt::format("cuMemAllocAsync of {} bytes", bytes),
                              .run =
                                  [all](uint64_t) {
                                    return AccessLog{{}, {all}};
                                  },
                              .host = {}});
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return with_context([&](State& s, const std::shared_ptr<Device>& device) {
    const StreamPtr stream = find_stream(s, device, handle);
    const auto allocation = s.allocation_at(address);
    if (stream == nullptr || !allocation || allocation->bytes.begin != address)
      return s.reject(CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync: no such stream or allocation");
    if (stream->capture != nullptr) return s.refuse(*stream, "cuMemFreeAsync");
    const auto free = [&s, allocation = *allocation](uint64_t) {
      const Lock lock(s.mutex);
      s.memory->release(allocation.bytes.begin);
      allocation.device->allocations.erase(allocation.bytes.begin);
      return AccessLog{{}, {allocation.bytes}};
    };
    return s.enqueue(
        stream, {.kind = Task::Kind::kMemory, .name = "cuMemFreeAsync", .run = free, .host = {}});
  });
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  return with_context([&](State& s, const std::shared_ptr<Device>&) {
    const CUresult refused = s.check_no_capture("cuMemHostAlloc");
    if (refused != CUDA_SUCCESS) return refused;
    s.pinned.push_back(std::make_shared<PinnedMemory>(bytes));
    *memory = s.pinned.back()->host();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFreeHost(void* memory) {
  return with_context([&](State& s, const std::shared_ptr<Device>&) {
    const CUresult refused = s.check_no_capture("cuMemFreeHost");
    if (refused != CUDA_SUCCESS) return refused;
    const auto found = std::find_if(s.pinned.begin(), s.pinned.end(),
                                    [&](const auto& each) { return each->host() == memory; });
    if (found == s.pinned.end())
      return s.reject(CUDA_ERROR_INVALID_VALUE, "cuMemFreeHost: not page-locked memory");
    for (const State::HostUse& use : s.host_uses)
      if (use.bytes.memory == *found)
        s.fail(*use.device, CUDA_ERROR_LAUNCH_FAILED,
               fmt::format("cuMemFreeHost of memory that {} uses, and the host has not waited "
                           "for it",
                           *use.stamp.name));
    (*found)->released = true;
    s.pinned.erase(found);
    return CUDA_SUCCESS;
  });
}
