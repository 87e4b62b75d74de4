// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries, loaded at run time, so that the build and a start need none of them.
#pragma once

#include <dlfcn.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/error.h"

namespace tessera::cuda {

// Where to look for a file: the one that the environment variable names, if it is set; otherwise
// where the loader looks, in $CUDA_HOME/lib64, in /usr/local/cuda/lib64, and in the wheels of
// NVIDIA (site-packages/nvidia/*/lib, which PyTorch installs) of the Python environments
// $VIRTUAL_ENV and $CONDA_PREFIX and of the first python3 of the PATH.
std::vector<std::string> library_files(const std::string& file, const char* variable);

// A library that stays loaded until the process ends.
class Library {
 public:
  // The first of these files that can be loaded. Error with the loader's reason, or with the files.
  explicit Library(const std::vector<std::string>& files);

  const std::string& file() const { return file_; }  // The name by which the loader found it.
  // Sets a pointer to the function of this name. Error if the library lacks it.
  template <typename Pointer>
  void find(Pointer& function, const char* name) const {
    function = reinterpret_cast<std::decay_t<Pointer>>(dlsym(handle_, name));
    if (function == nullptr) fail("{} has no function {}", file_, name);
  }

 private:
  std::string file_;
  void* handle_ = nullptr;
};

// The libraries that this process uses: "cuBLASLt 13.1.0 from /usr/lib/libcublasLt.so.13, …", in
// the order of their names; for the start of a run and for reports.
void note_library(std::string_view name, std::string_view version, const Library& library);
std::string noted_libraries();

}  // namespace tessera::cuda
