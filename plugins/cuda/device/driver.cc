// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/driver.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/library.h"

namespace tessera::cuda {
namespace {

Library open_library() {
  const char* const variable = std::getenv(kDriverVariable);
  try {
    return Library({variable != nullptr ? variable : "libcuda.so.1"});
  } catch (const Error& error) {
    fail("--device=cuda: this machine has no NVIDIA driver: {}; install it, or use --device=cpu",
         error.what());
  }
}

Driver open_driver() {
  const Library library = open_library();
  Driver driver;
  try {
    driver.for_each([&](auto& function, const char* name) { library.find(function, name); });
  } catch (const Error& error) {
    fail("--device=cuda: the driver {}; install a driver for CUDA {}.{} or newer", error.what(),
         kOldestDriver / 1000, kOldestDriver % 1000 / 10);
  }
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

std::vector<std::string> toolkit_library_files(std::string_view name, const char* variable) {
  if (const char* const file = std::getenv(variable)) return {file};
  int version = 0;
  check_cuda(load_driver().cuDriverGetVersion(&version), "asking for the driver's version");
  const int own = version / 1000 >= 13 ? 13 : 12;
  std::vector<std::string> folders = {""};
  if (const char* const home = std::getenv("CUDA_HOME"))
    folders.push_back(fmt::format("{}/lib64/", home));
  folders.push_back("/usr/local/cuda/lib64/");
  std::vector<std::string> files;
  for (const int major : {own, 25 - own})  // 12 or 13.
    for (const std::string& folder : folders)
      files.push_back(fmt::format("{}lib{}.so.{}", folder, name, major));
  return files;
}

}  // namespace tessera::cuda
