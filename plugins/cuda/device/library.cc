// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/library.h"

#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plugins/cuda/device/driver.h"

namespace tessera::cuda {

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

Library::Library(const std::vector<std::string>& files) {
  std::string reason;
  for (const std::string& file : files) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      file_ = file;
      return;
    }
    reason = dlerror();
  }
  if (files.size() == 1) fail("{}", reason);
  fail("none of {} can be loaded", fmt::join(files, ", "));
}

}  // namespace tessera::cuda
