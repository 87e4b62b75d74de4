// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/library.h"

#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::cuda {

std::vector<std::string> library_files(const std::string& file, const char* variable) {
  if (const char* const named = std::getenv(variable)) return {named};
  std::vector<std::string> files = {file};
  if (const char* const home = std::getenv("CUDA_HOME"))
    files.push_back(fmt::format("{}/lib64/{}", home, file));
  files.push_back("/usr/local/cuda/lib64/" + file);
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
