// SPDX-License-Identifier: Apache-2.0
// A fresh virtual GPU for a test, and two small kernels for it.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/virtual_gpu/device_state.h"

namespace tessera::virtual_gpu {

// PTX of add_one(to, from, count) and add(to, a, b, count), compiled by nvcc.
std::string test_kernels();

// Sets environment variables TESSERA_VIRTUAL_GPU… and starts the driver, which does not print its
// faults; GPU 0 is current.
class TestGpus {
 public:
  explicit TestGpus(const std::map<std::string, std::string>& environment) {
    setenv("TESSERA_VIRTUAL_GPU_PRINT", "0", 1);
    names_.push_back("TESSERA_VIRTUAL_GPU_PRINT");
    for (const auto& [name, value] : environment)
      setenv(name.c_str(), value.c_str(), 1), names_.push_back(name);
    tessera_virtual_gpu_restart();
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    int count = 0;
    REQUIRE(cuDeviceGetCount(&count) == CUDA_SUCCESS);
    for (int i = 0; i < count; ++i) {
      CUcontext context = nullptr;
      REQUIRE(cuDevicePrimaryCtxRetain(&context, i) == CUDA_SUCCESS);
      contexts_.push_back(context);
    }
    use(0);
  }
  explicit TestGpus(uint64_t seed = 1)
      : TestGpus({{"TESSERA_VIRTUAL_GPU_SEED", std::to_string(seed)}}) {}
  ~TestGpus() {
    for (const std::string& name : names_) unsetenv(name.c_str());
    tessera_virtual_gpu_restart();
    cuInit(0);  // The device plugin does this once for a process.
  }
  TestGpus(const TestGpus&) = delete;
  TestGpus& operator=(const TestGpus&) = delete;

  CUcontext context(size_t gpu) const { return contexts_[gpu]; }
  void use(size_t gpu) const { REQUIRE(cuCtxSetCurrent(contexts_[gpu]) == CUDA_SUCCESS); }

  // The methods below create objects of the current GPU.
  CUstream stream(int priority = 0) const {
    CUstream made = nullptr;
    REQUIRE(cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, priority) == CUDA_SUCCESS);
    return made;
  }
  CUevent event(unsigned flags = CU_EVENT_DEFAULT) const {
    CUevent made = nullptr;
    REQUIRE(cuEventCreate(&made, flags) == CUDA_SUCCESS);
    return made;
  }
  CUfunction function(const char* name) const {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    REQUIRE(cuModuleLoadDataEx(&module, test_kernels().c_str(), 0, nullptr, nullptr) ==
            CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS);
    REQUIRE(cuFuncLoad(function) == CUDA_SUCCESS);
    return function;
  }
  // Allocates `count` floats of this value.
  CUdeviceptr floats(size_t count, float value = 0.0f) const {
    CUdeviceptr memory = 0;
    REQUIRE(cuMemAlloc(&memory, 4 * count) == CUDA_SUCCESS);
    const CUstream filler = stream();
    REQUIRE(cuMemsetD32Async(memory, __builtin_bit_cast(unsigned, value), count, filler) ==
            CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(filler) == CUDA_SUCCESS);
    REQUIRE(cuStreamDestroy(filler) == CUDA_SUCCESS);
    return memory;
  }
  float* pinned_floats(size_t count) const {
    void* memory = nullptr;
    REQUIRE(cuMemHostAlloc(&memory, 4 * count, 0) == CUDA_SUCCESS);
    return static_cast<float*>(memory);
  }
  std::vector<float> read(CUdeviceptr from, size_t count, CUstream stream) const {
    std::vector<float> values(count);
    REQUIRE(cuMemcpyDtoHAsync(values.data(), from, 4 * count, stream) == CUDA_SUCCESS);
    return values;
  }

  static CUresult add_one(CUfunction function, CUdeviceptr to, CUdeviceptr from, int count,
                          CUstream stream) {
    void* arguments[] = {&to, &from, &count};
    return cuLaunchKernel(function, static_cast<unsigned>(count + 63) / 64, 1, 1, 64, 1, 1, 0,
                          stream, arguments, nullptr);
  }
  static CUresult add(CUfunction function, CUdeviceptr to, CUdeviceptr a, CUdeviceptr b, int count,
                      CUstream stream) {
    void* arguments[] = {&to, &a, &b, &count};
    return cuLaunchKernel(function, static_cast<unsigned>(count + 63) / 64, 1, 1, 64, 1, 1, 0,
                          stream, arguments, nullptr);
  }

 private:
  std::vector<std::string> names_;
  std::vector<CUcontext> contexts_;
};

inline std::string fault() { return tessera_virtual_gpu_last_fault(); }

inline std::string test_kernels() {
  const std::string index = R"(
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r3, %r4, %r5;
  setp.ge.s32 %p1, %r1, %r2;
  @%p1 bra $DONE;
  mul.wide.s32 %rd4, %r1, 4;
)";
  const std::string registers = R"(
  .reg .pred %p<2>;
  .reg .f32 %f<4>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<11>;
)";
  return R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry add_one(
  .param .u64 add_one_to,
  .param .u64 add_one_from,
  .param .u32 add_one_count
)
{)" + registers +
         R"(
  ld.param.u64 %rd1, [add_one_to];
  ld.param.u64 %rd2, [add_one_from];
  ld.param.u32 %r2, [add_one_count];)" +
         index + R"(
  cvta.to.global.u64 %rd3, %rd2;
  add.s64 %rd5, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  add.f32 %f2, %f1, 0f3F800000;
  cvta.to.global.u64 %rd6, %rd1;
  add.s64 %rd7, %rd6, %rd4;
  st.global.f32 [%rd7], %f2;
$DONE:
  ret;
}
.visible .entry add(
  .param .u64 add_to,
  .param .u64 add_a,
  .param .u64 add_b,
  .param .u32 add_count
)
{)" + registers +
         R"(
  ld.param.u64 %rd1, [add_to];
  ld.param.u64 %rd2, [add_a];
  ld.param.u64 %rd3, [add_b];
  ld.param.u32 %r2, [add_count];)" +
         index + R"(
  cvta.to.global.u64 %rd5, %rd2;
  add.s64 %rd6, %rd5, %rd4;
  cvta.to.global.u64 %rd7, %rd3;
  add.s64 %rd8, %rd7, %rd4;
  ld.global.f32 %f1, [%rd8];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f2, %f1;
  cvta.to.global.u64 %rd9, %rd1;
  add.s64 %rd10, %rd9, %rd4;
  st.global.f32 [%rd10], %f3;
$DONE:
  ret;
}
)";
}

}  // namespace tessera::virtual_gpu
