// SPDX-License-Identifier: Apache-2.0
// Sets up the stand-in for cuBLASLt in a test.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "tests/plugins/cuda/fake_cublaslt.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera::cuda {

inline const std::string kFakeLibrary = TESSERA_BINARY_DIR "/lib/virtual_gpu/fake_cublaslt.so";

// The stand-in for devices that are made during its lifetime, with an empty cache of algorithms.
class FakeCublasLt {
 public:
  explicit FakeCublasLt(const FakeCublasLtBehaviour& behaviour = {}) {
    void* const handle = ::dlopen(kFakeLibrary.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != nullptr);
    set_ = reinterpret_cast<decltype(&fake_cublaslt_set)>(::dlsym(handle, "fake_cublaslt_set"));
    counts_ =
        reinterpret_cast<decltype(&fake_cublaslt_counts)>(::dlsym(handle, "fake_cublaslt_counts"));
    behave(behaviour);
    counts_();
  }
  ~FakeCublasLt() { behave({}); }

  void behave(const FakeCublasLtBehaviour& behaviour) const { set_(&behaviour); }
  FakeCublasLtCounts counts() const { return counts_(); }
  std::filesystem::path cache_file() const { return cache_ / "tessera/kernel_choices"; }

 private:
  TemporaryDirectory cache_;
  ScopedVariable library_{"TESSERA_CUBLASLT", kFakeLibrary};
  ScopedVariable cache_home_{"XDG_CACHE_HOME", cache_.path().string()};
  decltype(&fake_cublaslt_set) set_;
  decltype(&fake_cublaslt_counts) counts_;
};

}  // namespace tessera::cuda
