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

namespace tessera::cuda {

// A member for each function of driver_functions.inc.
struct Driver {
#define TESSERA_FUNCTION(name) decltype(&::name) name = nullptr;  // NOLINT: no parentheses.
#include "plugins/cuda/device/driver_functions.inc"
#undef TESSERA_FUNCTION

  // visit(member, symbol) for each function.
  template <typename Visit>
  void for_each(const Visit& visit) {
#define TESSERA_TEXT(name) #name
#define TESSERA_FUNCTION(name) visit(name, TESSERA_TEXT(name));
#include "plugins/cuda/device/driver_functions.inc"
#undef TESSERA_FUNCTION
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
