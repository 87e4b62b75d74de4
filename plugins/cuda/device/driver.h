// SPDX-License-Identifier: Apache-2.0
// The CUDA driver interface (libcuda.so.1), loaded at run time: Tessera builds with the toolkit's
// headers alone, and starts where no driver is installed.
#pragma once

#include <cuda.h>

#include <string>
#include <string_view>
#include <vector>

// CUDA 13's header maps this name to cuEventElapsedTime_v2, which drivers before CUDA 12.8 lack.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end);

// The functions we call. <cuda.h> defines some of these names as macros for versioned symbols
// (cuMemAlloc is cuMemAlloc_v2), so members and symbols have the versioned names too.
// clang-format off
#define TESSERA_CUDA_DRIVER_FUNCTIONS(X)                                                         \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount)      \
  X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceCanAccessPeer)             \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent)                    \
  X(cuCtxEnablePeerAccess) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc)          \
  X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemsetD8Async)                  \
  X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery)       \
  X(cuStreamWaitEvent) X(cuStreamWriteValue32) X(cuEventCreate) X(cuEventDestroy)                \
  X(cuEventRecord) X(cuEventSynchronize) X(cuEventElapsedTime) X(cuModuleLoadDataEx)             \
  X(cuModuleGetFunction) X(cuModuleUnload) X(cuFuncGetAttribute) X(cuFuncSetAttribute)           \
  X(cuModuleGetFunctionCount) X(cuModuleEnumerateFunctions) X(cuFuncGetName) X(cuFuncLoad)       \
  X(cuLaunchKernel) X(cuDeviceGetPCIBusId) X(cuStreamBeginCapture) X(cuStreamEndCapture)         \
  X(cuStreamIsCapturing) X(cuGraphInstantiateWithFlags) X(cuGraphUpload) X(cuGraphLaunch)        \
  X(cuGraphDestroy) X(cuGraphExecDestroy)
// clang-format on

namespace tessera::cuda {

// A member for each function.
struct Driver {
#define TESSERA_MEMBER(name) decltype(&::name) name = nullptr;  // NOLINT: no parentheses.
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

  // visit(member, symbol) for each function.
  template <typename Visit>
  void for_each(const Visit& visit) {
#define TESSERA_TEXT(name) #name
#define TESSERA_VISIT(name) visit(name, TESSERA_TEXT(name));
    TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_VISIT)
#undef TESSERA_VISIT
#undef TESSERA_TEXT
  }
};

// The file that load_driver() opens if this environment variable is set.
inline constexpr const char* kDriverVariable = "TESSERA_CUDA_DRIVER";
// The oldest driver that has all functions above (CUDA 12.4).
inline constexpr int kOldestDriver = 12040;

// The driver, initialised. Loaded once; Error, in terms of the user, if it is missing or too old,
// or cannot start.
const Driver& load_driver();

// "<the driver's description> (<CUDA_ERROR_…>)".
std::string description_of(CUresult result);

// Error "<what>: <description>" unless `result` is CUDA_SUCCESS.
void check_cuda(CUresult result, std::string_view what);

// Where to look for lib<name>.so of the toolkit, for Library(): the file that the environment
// variable names, if it is set; otherwise the driver's own major version of CUDA before the other
// one, each where library_files() looks.
std::vector<std::string> toolkit_library_files(std::string_view name, const char* variable);

}  // namespace tessera::cuda
