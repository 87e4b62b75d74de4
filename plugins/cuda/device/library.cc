// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/library.h"

#include <fmt/ranges.h>

namespace tessera::cuda {

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
