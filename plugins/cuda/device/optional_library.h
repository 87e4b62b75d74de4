// SPDX-License-Identifier: Apache-2.0
// Libraries of NVIDIA that a run can do without: cuBLASLt, cuDNN, NCCL.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/driver.h"

namespace tessera::cuda {

// "9.19.0" of 91900, as these libraries number their versions.
inline std::string version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// The functions of a library, as a struct of pointers. Objects live until the process ends.
template <typename Functions>
class OptionalLibrary {
 public:
  // `variable` is the environment variable that names the file. load() opens it, or throws an Error
  // that says why it cannot be used.
  OptionalLibrary(const char* variable, Functions (*load)()) : variable_(variable), load_(load) {}

  // Loaded once for each file that is named. Null if the library cannot be used; `why` then says so
  // in one sentence. With another driver than the system's (kDriverVariable) only a library that is
  // named is loaded: NVIDIA's would not use that driver.
  const Functions* find(std::string& why) {
    const char* const named = std::getenv(variable_);
    const std::lock_guard lock(mutex_);
    const auto [it, is_new] = loaded_.try_emplace(named == nullptr ? "" : named);
    Loaded& loaded = it->second;
    if (is_new) {
      try {
        if (named == nullptr && std::getenv(kDriverVariable) != nullptr)
          fail("{} names another driver, which NVIDIA's libraries do not use", kDriverVariable);
        loaded.functions = std::make_unique<const Functions>(load_());
      } catch (const Error& error) {
        loaded.why = error.what();
      }
    }
    why = loaded.why;
    return loaded.functions.get();
  }

 private:
  struct Loaded {
    std::unique_ptr<const Functions> functions;
    std::string why;
  };

  const char* variable_;
  Functions (*load_)();
  std::mutex mutex_;
  std::map<std::string, Loaded> loaded_;  // By the file that was named.
};

}  // namespace tessera::cuda
