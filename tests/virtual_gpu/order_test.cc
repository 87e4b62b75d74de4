// SPDX-License-Identifier: Apache-2.0
// Tests the order of work on streams: orders are random, and unordered conflicting work is a fault
// with both names.
#include <set>
#include <string>
#include <vector>

#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::virtual_gpu {
namespace {

using Catch::Contains;

constexpr int kCount = 200;
constexpr uint64_t kSeeds = 12;

TEST_CASE("an event orders two streams, and without it the error names both kernels") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    for (const bool ordered : {true, false}) {
      const TestGpus gpus(seed);
      const CUfunction add_one = gpus.function("add_one");
      const CUdeviceptr x = gpus.floats(kCount, 1), y = gpus.floats(kCount),
                        z = gpus.floats(kCount);
      const CUstream first = gpus.stream(), second = gpus.stream();
      const CUevent event = gpus.event(CU_EVENT_DISABLE_TIMING);
      REQUIRE(gpus.add_one(add_one, y, x, kCount, first) == CUDA_SUCCESS);
      REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
      if (ordered) REQUIRE(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
      gpus.add_one(add_one, z, y, kCount, second);
      if (ordered) {
        REQUIRE(gpus.read(z, kCount, second) == std::vector<float>(kCount, 3.0f));
        REQUIRE(fault().empty());
        continue;
      }
      cuStreamSynchronize(first);
      cuStreamSynchronize(second);
      REQUIRE(cuStreamSynchronize(second) == CUDA_ERROR_LAUNCH_FAILED);
      REQUIRE_THAT(fault(), Contains("kernel add_one on stream 4 of GPU 0"));
      REQUIRE_THAT(fault(), Contains("kernel add_one on stream 5 of GPU 0"));
      REQUIRE_THAT(fault(), Contains("bytes 0 to 800 of the 800 bytes at"));
      REQUIRE_THAT(fault(), Contains("nothing orders the two"));
      CUdeviceptr more = 0;  // The error is sticky.
      REQUIRE(cuMemAlloc(&more, 4) == CUDA_ERROR_LAUNCH_FAILED);
    }
}

TEST_CASE("a wait refers to the last recording of an event before the wait was submitted") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TestGpus gpus(seed);
    const CUfunction add_one = gpus.function("add_one");
    const CUdeviceptr x = gpus.floats(kCount), y = gpus.floats(kCount), z = gpus.floats(kCount);
    const CUstream first = gpus.stream(), second = gpus.stream();
    const CUevent event = gpus.event();
    for (int round = 1; round <= 3; ++round) {
      REQUIRE(gpus.add_one(add_one, x, x, kCount, first) == CUDA_SUCCESS);
      REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
      REQUIRE(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
      REQUIRE(gpus.add_one(add_one, y, x, kCount, second) == CUDA_SUCCESS);
      REQUIRE(cuEventRecord(event, second) == CUDA_SUCCESS);
      REQUIRE(cuStreamWaitEvent(first, event, 0) == CUDA_SUCCESS);
    }
    REQUIRE(gpus.read(y, kCount, second)[0] == 4.0f);
    // The wait refers to the recording before this kernel.
    REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
    REQUIRE(gpus.add_one(add_one, z, x, kCount, first) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
    gpus.add_one(add_one, z, y, kCount, second);
    cuStreamSynchronize(first);
    cuStreamSynchronize(second);
    REQUIRE_THAT(fault(), Contains("writes bytes 0 to 800"));
  }
}

TEST_CASE("a wait of the host orders later work of any stream") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TestGpus gpus(seed);
    const CUfunction add_one = gpus.function("add_one");
    const CUdeviceptr x = gpus.floats(kCount), y = gpus.floats(kCount);
    const CUstream first = gpus.stream(), second = gpus.stream();
    const CUevent event = gpus.event();
    REQUIRE(gpus.add_one(add_one, y, x, kCount, first) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) continue;
    REQUIRE(gpus.add_one(add_one, x, y, kCount, second) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(gpus.read(x, 1, first)[0] == 2.0f);
    REQUIRE(cuMemFree(x) == CUDA_SUCCESS);
  }
}

TEST_CASE("a wait for an event that was never recorded does nothing, with a warning") {
  const TestGpus gpus;
  const CUevent event = gpus.event();
  REQUIRE(cuStreamWaitEvent(gpus.stream(), event, 0) == CUDA_SUCCESS);
  REQUIRE_THAT(tessera_virtual_gpu_warnings(),
               Contains("stream 1 of GPU 0 waits for an event that was never recorded"));
  float milliseconds = 0;
  REQUIRE(cuEventElapsedTime(&milliseconds, event, event) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("events measure time in order") {
  const TestGpus gpus;
  const CUstream stream = gpus.stream();
  const CUevent begin = gpus.event(), end = gpus.event();
  const CUevent untimed = gpus.event(CU_EVENT_DISABLE_TIMING);
  REQUIRE(cuEventRecord(begin, stream) == CUDA_SUCCESS);
  gpus.floats(1000);
  REQUIRE(cuEventRecord(end, stream) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(untimed, stream) == CUDA_SUCCESS);
  REQUIRE(cuEventSynchronize(end) == CUDA_SUCCESS);
  float milliseconds = -1;
  REQUIRE(cuEventElapsedTime(&milliseconds, begin, end) == CUDA_SUCCESS);
  REQUIRE(milliseconds >= 0.0f);
  REQUIRE(cuEventElapsedTime(&milliseconds, begin, untimed) == CUDA_ERROR_INVALID_HANDLE);
}

// Returns the order in which the host functions a, b and c of three streams run.
std::string order_of_three(uint64_t seed, int priority_of_c) {
  const TestGpus gpus(seed);
  std::string order;
  std::pair<std::string*, char> notes[] = {{&order, 'a'}, {&order, 'b'}, {&order, 'c'}};
  const CUhostFn append = [](void* data) {
    const auto& note = *static_cast<std::pair<std::string*, char>*>(data);
    note.first->push_back(note.second);
  };
  for (auto& note : notes)
    REQUIRE(cuLaunchHostFunc(gpus.stream(note.second == 'c' ? priority_of_c : 0), append, &note) ==
            CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(order.size() == 3);
  return order;
}

TEST_CASE("independent streams run in all orders, urgent ones earlier") {
  std::set<std::string> orders;
  int last = 0, urgent_last = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const std::string order = order_of_three(seed, 0);
    orders.insert(order);
    last += order[2] == 'c' ? 1 : 0;
    urgent_last += order_of_three(seed, -5)[2] == 'c' ? 1 : 0;
  }
  REQUIRE(orders.size() == 6);
  REQUIRE(urgent_last < last);
  REQUIRE(order_of_three(0, -5) == "abc");
}

TEST_CASE("a host read before the copy is complete is an error with the copy's name") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TestGpus gpus(seed);
    const CUdeviceptr x = gpus.floats(5000, 2);
    const CUstream stream = gpus.stream();
    float* const host = gpus.pinned_floats(5000);
    REQUIRE(cuMemcpyDtoHAsync(host, x, 20000, stream) == CUDA_SUCCESS);
    if (seed % 2 == 0) {
      REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
      REQUIRE(host[100] == 2.0f);
      REQUIRE(cuMemFreeHost(host) == CUDA_SUCCESS);
      continue;
    }
    const volatile float early = host[100];
    static_cast<void>(early);
    REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE_THAT(fault(), Contains("the host uses byte 400 of what a copy of 20000 bytes to the "
                                   "host on stream 2 of GPU 0 writes, and has not waited"));
  }
}

TEST_CASE("a host function may use what the copy before it has written") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TestGpus gpus(seed);
    const CUdeviceptr x = gpus.floats(5000, 2);
    const CUstream stream = gpus.stream();
    float* const host = gpus.pinned_floats(5000);
    REQUIRE(cuMemcpyDtoHAsync(host, x, 20000, stream) == CUDA_SUCCESS);
    REQUIRE(cuLaunchHostFunc(
                stream, [](void* data) { *static_cast<float*>(data) += 5; }, host) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoDAsync(x, host, 20000, stream) == CUDA_SUCCESS);
    REQUIRE(gpus.read(x, 2, stream) == std::vector<float>{7.0f, 2.0f});
  }
}

TEST_CASE("overwriting a staging buffer before its copy is complete is an error") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TestGpus gpus(seed);
    const CUdeviceptr x = gpus.floats(4);
    const CUstream stream = gpus.stream();
    float* const host = gpus.pinned_floats(4);
    std::fill_n(host, 4, 3.0f);
    REQUIRE(cuMemcpyHtoDAsync(x, host, 16, stream) == CUDA_SUCCESS);
    if (seed % 2 == 0) REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    host[1] = 4.0f;
    if (seed % 2 == 0) {
      REQUIRE(gpus.read(x, 4, stream) == std::vector<float>(4, 3.0f));
      continue;
    }
    cuStreamSynchronize(stream);
    REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE_THAT(fault(), Contains("the host changed what a copy of 16 bytes from the host on "
                                   "stream 2 of GPU 0 reads, and had not waited for it"));
  }
}

TEST_CASE("pageable memory is copied within the call, as by the driver") {
  const TestGpus gpus;
  const CUdeviceptr x = gpus.floats(4);
  const CUstream stream = gpus.stream();
  std::vector<float> values(4, 3.0f);
  REQUIRE(cuMemcpyHtoDAsync(x, values.data(), 16, stream) == CUDA_SUCCESS);
  values.assign(4, 4.0f);
  REQUIRE(gpus.read(x, 4, stream) == std::vector<float>(4, 3.0f));
}

TEST_CASE("memory that work still uses is not freed, and work does not use freed memory") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TestGpus gpus(seed);
    const CUfunction add_one = gpus.function("add_one");
    const CUdeviceptr x = gpus.floats(kCount), y = gpus.floats(kCount);
    const CUstream stream = gpus.stream();
    REQUIRE(gpus.add_one(add_one, y, x, kCount, stream) == CUDA_SUCCESS);
    cuMemFree(x);  // The kernel has run, or will.
    cuStreamSynchronize(stream);
    REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE_THAT(fault(), Contains("kernel add_one on stream 3 of GPU 0"));
    REQUIRE_THAT(fault(), Contains("released") || Contains("the host has not waited for it"));
  }
}

TEST_CASE("memory of a pool is allocated and freed in the order of its stream") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TestGpus gpus(seed);
    const CUstream stream = gpus.stream(), other = gpus.stream();
    CUdeviceptr x = 0;
    REQUIRE(cuMemAllocAsync(&x, 64, stream) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(x, 1, 64, stream) == CUDA_SUCCESS);
    const bool late = seed % 2 == 1;
    if (!late) REQUIRE(cuMemFreeAsync(x, stream) == CUDA_SUCCESS);
    if (late) cuMemsetD8Async(x, 2, 64, other);  // Not after the allocation.
    cuStreamSynchronize(stream);
    cuStreamSynchronize(other);
    REQUIRE(cuStreamSynchronize(stream) == (late ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS));
    if (late) REQUIRE_THAT(fault(), Contains("nothing orders the two"));
  }
}

TEST_CASE("copying uninitialised memory to the host is an error") {
  const TestGpus gpus;
  CUdeviceptr x = 0;
  REQUIRE(cuMemAlloc(&x, 8) == CUDA_SUCCESS);
  const CUstream stream = gpus.stream();
  REQUIRE(cuMemsetD8Async(x, 0, 6, stream) == CUDA_SUCCESS);
  std::vector<std::byte> bytes(8);
  REQUIRE(cuMemcpyDtoHAsync(bytes.data(), x, 8, stream) == CUDA_ERROR_LAUNCH_FAILED);
  REQUIRE_THAT(fault(), Contains("byte 6 of what it reads was never written"));
}

}  // namespace
}  // namespace tessera::virtual_gpu
