// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <type_traits>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera::cuda {
namespace {

void* find_symbol(void* library, const char* name, const std::string& file) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr)
    fail(
        "--device=cuda: the driver {} has no function {}; install a driver for CUDA {}.{} or newer",
        file, name, kOldestDriver / 1000, kOldestDriver % 1000 / 10);
  return symbol;
}

Driver open_driver() {
  const char* const variable = std::getenv(kDriverVariable);
  const std::string file = variable != nullptr ? variable : "libcuda.so.1";
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail("--device=cuda: this machine has no NVIDIA driver: {}; install it, or use --device=cpu",
         dlerror());
  }
  Driver driver;
  driver.for_each([&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(find_symbol(library, name, file));
  });
  return driver;
}

std::string describe(const Driver& driver, CUresult result) {
  const char *name = nullptr, *text = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  return fmt::format("{} ({})", text != nullptr ? text : "unknown error",
                     name != nullptr ? name : std::to_string(static_cast<int>(result)));
}

Driver start_driver() {
  const Driver driver = open_driver();
  int version = 0;
  driver.cuDriverGetVersion(&version);
  if (version < kOldestDriver)
    fail("--device=cuda: the NVIDIA driver is for CUDA {}.{}, expected {}.{} or newer; update it",
         version / 1000, version % 1000 / 10, kOldestDriver / 1000, kOldestDriver % 1000 / 10);
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    fail("--device=cuda: the NVIDIA driver cannot start: {}; see what nvidia-smi prints",
         describe(driver, result));
  return driver;
}

}  // namespace

const Driver& load_driver() {
  static const Driver* const driver = new Driver(start_driver());  // Used until the process ends.
  return *driver;
}

std::string description_of(CUresult result) { return describe(load_driver(), result); }

void check_cuda(CUresult result, std::string_view what) {
  if (result != CUDA_SUCCESS) fail("{}: {}", what, description_of(result));
}

}  // namespace tessera::cuda
