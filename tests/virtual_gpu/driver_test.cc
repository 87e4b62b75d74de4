// SPDX-License-Identifier: Apache-2.0
// Tests GPUs, contexts, memory, modules and launch limits of the stand-in driver.
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::virtual_gpu {
namespace {

using Catch::Contains;

using Environment = std::map<std::string, std::string>;

TEST_CASE("environment variables define the virtual GPUs") {
  const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPUS", "3"},
                                  {"TESSERA_VIRTUAL_GPU_MEMORY", "1000000"},
                                  {"TESSERA_VIRTUAL_GPU_CAPABILITY", "89"},
                                  {"TESSERA_VIRTUAL_GPU_CUDA_VERSION", "12040"}});
  int count = 0, version = 0, major = 0, minor = 0;
  REQUIRE(cuDeviceGetCount(&count) == CUDA_SUCCESS);
  REQUIRE(count == 3);
  REQUIRE(cuDriverGetVersion(&version) == CUDA_SUCCESS);
  REQUIRE(version == 12040);
  REQUIRE(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 2) ==
          CUDA_SUCCESS);
  REQUIRE(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 2) ==
          CUDA_SUCCESS);
  REQUIRE(10 * major + minor == 89);
  CUdevice device = 0;
  REQUIRE(cuDeviceGet(&device, 3) == CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0) ==
          CUDA_ERROR_INVALID_VALUE);
  size_t free = 0, total = 0;
  gpus.floats(1000);
  REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  REQUIRE(total == 1000000);
  REQUIRE(free <= 996000);
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAlloc(&memory, 997000) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE_THAT(fault(), Contains("allocating 997000 bytes"));
}

TEST_CASE("without GPUs the driver does not start") {
  setenv("TESSERA_VIRTUAL_GPUS", "0", 1);
  tessera_virtual_gpu_restart();
  REQUIRE(cuInit(0) == CUDA_ERROR_NO_DEVICE);
  int count = 0;
  REQUIRE(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
  unsetenv("TESSERA_VIRTUAL_GPUS");
  tessera_virtual_gpu_restart();
}

TEST_CASE("calls need a live context and live handles") {
  const TestGpus gpus;
  const CUstream stream = gpus.stream();
  REQUIRE(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(fault() == "no context is current on this thread");
  gpus.use(0);
  CUcontext current = nullptr;
  REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  REQUIRE(current == gpus.context(0));
  REQUIRE(cuStreamDestroy(stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(cuStreamDestroy(stream) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(fault() == "a handle of nothing, or of what was destroyed");
  REQUIRE(cuStreamSynchronize(nullptr) == CUDA_ERROR_INVALID_HANDLE);  // No default stream.
  REQUIRE(cuMemFree(12345) == CUDA_ERROR_INVALID_VALUE);
  const CUevent event = gpus.event();
  gpus.use(1);
  REQUIRE(cuEventRecord(event, gpus.stream()) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE_THAT(fault(), Contains("records an event of another GPU"));
}

TEST_CASE("launches beyond the limits are refused with numbers") {
  const TestGpus gpus;
  const CUfunction function = gpus.function("add_one");
  const CUstream stream = gpus.stream();
  CUdeviceptr x = gpus.floats(1);
  int count = 1;
  void* arguments[] = {&x, &x, &count};
  const auto launch = [&](unsigned blocks, unsigned threads, unsigned y, unsigned shared) {
    return cuLaunchKernel(function, blocks, y, 1, threads, 1, 1, shared, stream, arguments,
                          nullptr);
  };
  REQUIRE(launch(1, 1024, 1, 0) == CUDA_SUCCESS);
  REQUIRE(launch(1, 1025, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(fault() == "launch of add_one: 1025 threads in a block, at most 1024");
  REQUIRE(launch(1, 32, 65536, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(fault() == "launch of add_one: 65536 blocks along y or z, at most 65535");
  REQUIRE(launch(0, 32, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(fault() == "launch of add_one: no threads or no blocks");
  const auto limit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  REQUIRE(launch(1, 32, 1, 50000) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(fault() == "launch of add_one: 50000 bytes of dynamic shared memory, at most 49152");
  REQUIRE(cuFuncSetAttribute(function, limit, 232449) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuFuncSetAttribute(function, limit, 50000) == CUDA_SUCCESS);
  REQUIRE(launch(1, 32, 1, 50000) == CUDA_SUCCESS);
  arguments[1] = nullptr;
  REQUIRE(launch(1, 32, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(fault() == "launch of add_one: no argument 1");
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  int blocks = 0;
  REQUIRE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0) == CUDA_SUCCESS);
  REQUIRE(blocks == 2);
  REQUIRE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 64, 100000) ==
          CUDA_SUCCESS);
  REQUIRE(blocks == 2);
}

TEST_CASE("the kernels of a module can be listed") {
  const TestGpus gpus;
  CUmodule module = nullptr;
  unsigned count = 0;
  REQUIRE(cuModuleLoadDataEx(&module, test_kernels().c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunctionCount(&count, module) == CUDA_SUCCESS);
  std::vector<CUfunction> functions(count);
  REQUIRE(cuModuleEnumerateFunctions(functions.data(), count, module) == CUDA_SUCCESS);
  std::set<std::string> names;
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    int code = 0;
    REQUIRE(cuFuncGetName(&name, function) == CUDA_SUCCESS);
    REQUIRE(cuFuncGetAttribute(&code, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function) == CUDA_SUCCESS);
    REQUIRE(code == 90);
    const auto most = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    REQUIRE(cuFuncGetAttribute(&code, most, function) == CUDA_ERROR_FUNCTION_NOT_LOADED);
    CUfunction named = nullptr;
    REQUIRE(cuModuleGetFunction(&named, module, name) == CUDA_SUCCESS);
    REQUIRE(cuFuncGetAttribute(&code, most, function) == CUDA_SUCCESS);
    names.insert(name);
  }
  REQUIRE(names.size() == count);
  REQUIRE(names.contains("add_one"));
  REQUIRE(names.contains("add"));
}

TEST_CASE("a kernel's launch bounds limit its blocks") {
  const TestGpus gpus;
  std::string ptx = test_kernels();
  ptx.insert(ptx.find('{'), ".maxntid 128, 1, 1\n");
  const CUstream stream = gpus.stream();
  const CUdeviceptr x = gpus.floats(256);
  CUmodule module = nullptr;
  CUfunction bounded = nullptr, free = nullptr;
  REQUIRE(cuModuleLoadDataEx(&module, ptx.c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&bounded, module, "add_one") == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&free, module, "add") == CUDA_SUCCESS);
  REQUIRE(cuFuncLoad(bounded) == CUDA_SUCCESS);
  int bounded_threads = 0, threads = 0;
  const auto most = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
  REQUIRE(cuFuncGetAttribute(&bounded_threads, most, bounded) == CUDA_SUCCESS);
  REQUIRE(cuFuncGetAttribute(&threads, most, free) == CUDA_SUCCESS);
  REQUIRE(bounded_threads == 128);
  REQUIRE(threads == 1024);
  int count = 256;
  CUdeviceptr to = x, from = x;
  void* arguments[] = {&to, &from, &count};
  REQUIRE(cuLaunchKernel(bounded, 2, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr) ==
          CUDA_SUCCESS);
  REQUIRE(cuLaunchKernel(bounded, 1, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr) ==
          CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  REQUIRE(fault() == "launch of add_one: 256 threads in a block by __launch_bounds__, at most 128");
}

TEST_CASE("arguments are copied by the launch") {
  const TestGpus gpus;
  const CUfunction function = gpus.function("add_one");
  const CUstream stream = gpus.stream();
  CUdeviceptr x = gpus.floats(1);
  int count = 1;
  void* arguments[] = {&x, &x, &count};
  REQUIRE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) ==
          CUDA_SUCCESS);
  const CUdeviceptr before = std::exchange(x, 0);
  REQUIRE(gpus.read(before, 1, stream)[0] == 1.0f);
}

void append(std::string& to, const void* bytes, size_t count) {
  to.append(static_cast<const char*>(bytes), count);
}

// An image of a container in nvcc's format: its kind (1: PTX, 2: machine code) and architecture.
struct FatbinPart {
  uint16_t kind;
  uint32_t architecture;
  std::string payload;
  bool is_compressed = false;
};
std::string fatbin(const std::vector<FatbinPart>& parts) {
  std::string entries;
  for (const FatbinPart& part : parts) {
    const std::string payload = part.payload + std::string(8 - part.payload.size() % 8, '\0');
    const uint16_t version = 0x101, minor = 0, major = 7;
    const uint32_t header = 64, compressed = part.is_compressed ? 10 : 0, options = 0;
    const uint64_t bytes = payload.size();
    append(entries, &part.kind, 2), append(entries, &version, 2), append(entries, &header, 4);
    append(entries, &bytes, 8), append(entries, &compressed, 4), append(entries, &options, 4);
    append(entries, &minor, 2), append(entries, &major, 2);
    append(entries, &part.architecture, 4), append(entries, std::string(32, '\0').data(), 32);
    entries += payload;
  }
  const uint32_t magic = 0xBA55ED50;
  const uint16_t version = 1, header = 16;
  const uint64_t bytes = entries.size();
  std::string image;
  append(image, &magic, 4), append(image, &version, 2), append(image, &header, 2);
  append(image, &bytes, 8);
  return image + entries;
}

TEST_CASE("an image that the GPU can run is chosen from a container") {
  const TestGpus gpus;  // sm_90
  const std::string ptx = test_kernels();
  struct Row {
    std::string image;
    CUresult expected;
    std::string text;
  };
  const Row rows[] = {
      {ptx, CUDA_SUCCESS, ""},
      {fatbin({{2, 80, "machine code"}, {1, 80, ptx}}), CUDA_SUCCESS, ""},
      {fatbin({{1, 80, ptx}, {1, 100, "not for us"}}), CUDA_SUCCESS, ""},
      {fatbin({{2, 100, "machine code"}, {1, 100, ptx}}), CUDA_ERROR_NO_BINARY_FOR_GPU,
       "neither machine code nor PTX for sm_90"},
      {fatbin({{2, 80, "machine code"}}), CUDA_ERROR_NO_BINARY_FOR_GPU, "for sm_90"},
      {fatbin({{2, 90, "machine code"}}), CUDA_ERROR_INVALID_IMAGE, "needs PTX"},
      {fatbin({{1, 80, ptx, true}}), CUDA_ERROR_INVALID_IMAGE, "--no-compress"},
      {".version 9.0\n.target sm_100\n", CUDA_ERROR_NO_BINARY_FOR_GPU, "PTX for sm_100"},
      {"no PTX at all", CUDA_ERROR_INVALID_IMAGE, "neither PTX nor a fatbin"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    char log[200] = {};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    REQUIRE(cuModuleLoadDataEx(&module, row.image.c_str(), 2, options, values) == row.expected);
    REQUIRE_THAT(std::string(log), Contains(row.text));
    if (row.expected != CUDA_SUCCESS) continue;
    REQUIRE(cuModuleGetFunction(&function, module, "add_one") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&function, module, "add_two") == CUDA_ERROR_NOT_FOUND);
    REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
  }
}

TEST_CASE("a module's variables have memory of their own after a restart") {
  const std::string ptx = R"(
.version 7.0
.target sm_80
.address_size 64
.global .align 4 .u32 counter[1] = {41};
.visible .entry count(.param .u64 count_to)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [count_to];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [counter];
  add.s32 %r2, %r1, 1;
  st.global.u32 [counter], %r2;
  st.global.u32 [%rd2], %r2;
  ret;
}
)";
  for (const size_t count : {1, 4096}) {  // Other addresses the second time.
    const TestGpus gpus(0);
    CUdeviceptr to = gpus.floats(count);
    const CUstream stream = gpus.stream();
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    REQUIRE(cuModuleLoadDataEx(&module, ptx.c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&function, module, "count") == CUDA_SUCCESS);
    REQUIRE(cuFuncLoad(function) == CUDA_SUCCESS);
    void* arguments[] = {&to};
    REQUIRE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) ==
            CUDA_SUCCESS);
    uint32_t counted = 0;
    REQUIRE(cuMemcpyDtoHAsync(&counted, to, 4, stream) == CUDA_SUCCESS);
    INFO(fault());
    REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    REQUIRE(counted == 42);
  }
}

TEST_CASE("kernels that are not loaded, or were unloaded, are an error with their name") {
  const TestGpus gpus(0);
  const CUdeviceptr x = gpus.floats(4);
  const CUstream stream = gpus.stream();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  REQUIRE(cuModuleLoadDataEx(&module, test_kernels().c_str(), 0, nullptr, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&function, module, "add_one") == CUDA_SUCCESS);
  REQUIRE(gpus.add_one(function, x, x, 4, stream) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(fault() == "add_one is launched before cuFuncLoad");
  REQUIRE(cuFuncLoad(function) == CUDA_SUCCESS);
  REQUIRE(gpus.add_one(function, x, x, 4, stream) == CUDA_SUCCESS);
  REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
  REQUIRE(gpus.add_one(function, x, x, 4, stream) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
  REQUIRE_THAT(fault(), Contains("kernel add_one on stream 2 of GPU 0: the module was unloaded"));
}

TEST_CASE("GPUs copy between them; kernels need peer access") {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const TestGpus gpus(seed);
    gpus.use(1);
    const CUdeviceptr there = gpus.floats(100, 5);
    gpus.use(0);
    const CUdeviceptr here = gpus.floats(100);
    const CUstream stream = gpus.stream();
    REQUIRE(cuMemcpyPeerAsync(here, gpus.context(1), there, gpus.context(1), 400, stream) ==
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyPeerAsync(here, gpus.context(0), there, gpus.context(1), 400, stream) ==
            CUDA_SUCCESS);
    REQUIRE(gpus.read(here, 100, stream) == std::vector<float>(100, 5.0f));
    int can = 0;
    REQUIRE(cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS);
    REQUIRE(can == 1);
    const bool enabled = seed % 2 == 0;
    if (enabled) {
      REQUIRE(cuCtxEnablePeerAccess(gpus.context(1), 0) == CUDA_SUCCESS);
      REQUIRE(cuCtxEnablePeerAccess(gpus.context(1), 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    REQUIRE(gpus.add_one(gpus.function("add_one"), here, there, 100, stream) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(stream) == (enabled ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED));
    if (enabled) continue;
    REQUIRE_THAT(fault(), Contains("kernel add_one on stream 2 of GPU 0: uses bytes 0 to 400"));
    REQUIRE_THAT(fault(), Contains("on GPU 1 without cuCtxEnablePeerAccess"));
    gpus.use(1);  // The other GPU still works.
    REQUIRE(gpus.read(there, 1, gpus.stream())[0] == 5.0f);
  }
}

// Copies `x` of GPU 0 to GPU 1 after three kernels. `result`: the values on GPU 1.
CUresult copy_after_kernels(const TestGpus& gpus, std::vector<float>& result) {
  const CUdeviceptr x = gpus.floats(100, 1);
  const CUstream first = gpus.stream();
  const CUevent event = gpus.event(CU_EVENT_DISABLE_TIMING);
  const CUfunction add_one = gpus.function("add_one");
  gpus.use(1);
  const CUdeviceptr y = gpus.floats(100);
  const CUstream second = gpus.stream();
  gpus.use(0);
  for (int i = 0; i < 3; ++i) REQUIRE(gpus.add_one(add_one, x, x, 100, first) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
  gpus.use(1);
  REQUIRE(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoDAsync(y, x, 400, second) == CUDA_SUCCESS);
  result.resize(100);
  return cuMemcpyDtoHAsync(result.data(), y, 400, second);
}

TEST_CASE("events order the work of two GPUs, and work that waits for failed work fails") {
  std::vector<float> result;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    REQUIRE(copy_after_kernels(TestGpus(seed), result) == CUDA_SUCCESS);
    REQUIRE(result == std::vector<float>(100, 4.0f));
  }
  const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPU_SEED", "0"},
                                  {"TESSERA_VIRTUAL_GPU_FAULT", "launch_failure:2"}});
  REQUIRE(copy_after_kernels(gpus, result) == CUDA_ERROR_LAUNCH_FAILED);
  REQUIRE_THAT(fault(), Contains("kernel add_one on stream 2 of GPU 0: planned"));
  gpus.use(0);
  REQUIRE(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("TESSERA_VIRTUAL_GPU_FAULT makes an operation fail") {
  const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPU_FAULT", "out_of_memory:3"}});
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAlloc(&memory, 4) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&memory, 4) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&memory, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(cuMemAlloc(&memory, 4) == CUDA_SUCCESS);
  tessera_virtual_gpu_plan_fault("lost_device:2");
  const CUstream stream = gpus.stream();
  REQUIRE(cuMemsetD8Async(memory, 0, 4, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD8Async(memory, 0, 4, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_DEVICE_UNAVAILABLE);
  REQUIRE(fault() == "planned: GPU 0 is lost");
  REQUIRE(cuMemsetD8Async(memory, 0, 4, stream) == CUDA_ERROR_DEVICE_UNAVAILABLE);
}

TEST_CASE("the end of a context reports what it left and clears its error") {
  const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPU_FAULT", "launch_failure"}});
  const CUdeviceptr x = gpus.floats(4);
  const CUstream stream = gpus.stream();
  REQUIRE(gpus.add_one(gpus.function("add_one"), x, x, 4, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  REQUIRE_THAT(tessera_virtual_gpu_warnings(),
               Contains("GPU 0: 1 streams, 1 modules and 1 allocations are left"));
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_CONTEXT);
  CUcontext context = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  gpus.use(0);
  REQUIRE(cuStreamSynchronize(gpus.stream()) == CUDA_SUCCESS);
}

TEST_CASE("a host function may not call the driver") {
  const TestGpus gpus;
  CUresult result = CUDA_SUCCESS;
  REQUIRE(cuLaunchHostFunc(
              gpus.stream(), [](void* data) { *static_cast<CUresult*>(data) = cuCtxSynchronize(); },
              &result) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(result == CUDA_ERROR_NOT_PERMITTED);
}

}  // namespace
}  // namespace tessera::virtual_gpu
