// SPDX-License-Identifier: Apache-2.0
// Tests that calls that the driver's documentation calls invalid are refused: limits of each kind
// of GPU, flags, and contexts that are not current.
#include <map>
#include <string>

#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::virtual_gpu {
namespace {

using Catch::Contains;
using Environment = std::map<std::string, std::string>;

int attribute(CUdevice_attribute name) {
  int value = 0;
  REQUIRE(cuDeviceGetAttribute(&value, name, 0) == CUDA_SUCCESS);
  return value;
}

struct Row {
  const char* capability;
  int processors, shared, blocks_of_1024, small_blocks;
};

TEST_CASE("each kind of GPU has limits of its own") {
  for (const auto& [capability, processors, shared, blocks_of_1024, small_blocks] :
       {Row{"80", 108, 163, 2, 32}, Row{"89", 128, 99, 1, 24}, Row{"90", 132, 227, 2, 32},
        Row{"100", 148, 227, 2, 32}, Row{"120", 170, 99, 1, 24}}) {
    CAPTURE(capability);
    const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPU_CAPABILITY", capability}});
    const CUfunction function = gpus.function("add_one");
    REQUIRE(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == processors);
    REQUIRE(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == shared << 10);
    const auto limit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    REQUIRE(cuFuncSetAttribute(function, limit, (shared << 10) + 1) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuFuncSetAttribute(function, limit, shared << 10) == CUDA_SUCCESS);
    const auto blocks = [&](int threads, size_t bytes) {
      int count = 0;
      REQUIRE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, threads, bytes) ==
              CUDA_SUCCESS);
      return count;
    };
    REQUIRE(blocks(1024, 0) == blocks_of_1024);
    REQUIRE(blocks(32, 0) == small_blocks);
    REQUIRE(blocks(32, static_cast<size_t>(shared) << 10) == 1);
    CUdeviceptr x = gpus.floats(1);
    int count = 1;
    void* arguments[] = {&x, &x, &count};
    const auto launch = [&](unsigned bytes) {
      return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, bytes, gpus.stream(), arguments, nullptr);
    };
    REQUIRE(launch(static_cast<unsigned>(shared << 10)) == CUDA_SUCCESS);
    REQUIRE(launch(static_cast<unsigned>(shared << 10) + 1) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  }
}

TEST_CASE("flags that the documentation does not know are refused") {
  const TestGpus gpus;
  REQUIRE(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreateWithPriority(&stream, 2, 0) == CUDA_ERROR_INVALID_VALUE);
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, 8) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuEventCreate(&event, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(gpus.stream(), event, CU_EVENT_WAIT_EXTERNAL) ==
          CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuStreamBeginCapture(gpus.stream(), static_cast<CUstreamCaptureMode>(3)) ==
          CUDA_ERROR_INVALID_VALUE);
  void* memory = nullptr;
  REQUIRE(cuMemHostAlloc(&memory, 8, 8) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemHostAlloc(&memory, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuCtxEnablePeerAccess(gpus.context(1), 1) == CUDA_ERROR_INVALID_VALUE);
  char text[13];
  REQUIRE(cuDeviceGetPCIBusId(text, 12, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuDeviceGetPCIBusId(text, 13, 0) == CUDA_SUCCESS);
}

TEST_CASE("streams and events are usable only in their GPU's context") {
  const TestGpus gpus;
  const CUfunction function = gpus.function("add_one");
  const CUdeviceptr x = gpus.floats(4);
  const CUstream stream = gpus.stream();
  const CUevent first = gpus.event();
  REQUIRE(cuEventRecord(first, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  gpus.use(1);
  REQUIRE(gpus.add_one(function, x, x, 4, stream) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE_THAT(fault(), Contains("whose context is not current"));
  const CUstream other = gpus.stream();
  const CUevent second = gpus.event();
  REQUIRE(cuEventRecord(second, other) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(other) == CUDA_SUCCESS);
  float milliseconds = 0;
  REQUIRE(cuEventElapsedTime(&milliseconds, first, second) == CUDA_ERROR_INVALID_HANDLE);
  int can = 0;
  REQUIRE(cuDeviceCanAccessPeer(&can, 0, 9) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("peer access is refused if TESSERA_VIRTUAL_GPU_PEER_ACCESS is 0") {
  const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPU_PEER_ACCESS", "0"}});
  REQUIRE(cuCtxEnablePeerAccess(gpus.context(1), 0) == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

}  // namespace
}  // namespace tessera::virtual_gpu
