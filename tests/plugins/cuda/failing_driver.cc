// SPDX-License-Identifier: Apache-2.0
// A driver whose functions fail at a chosen call, for TESSERA_CUDA_DRIVER. It defines every
// function of plugins/cuda/device/driver.h under its symbol and forwards to the virtual GPU.
//
// TESSERA_FAILING_CALL=cuMemAlloc_v2:3 makes the third call of a function return
// CUDA_ERROR_UNKNOWN. TESSERA_COUNTED_CALLS=FILE writes a line "cuMemAlloc_v2 12" for each function
// that was called, when the process ends.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "plugins/cuda/device/driver.h"

namespace tessera::cuda {
namespace {

constexpr const char* kNext = TESSERA_BINARY_DIR "/lib/virtual_gpu/libcuda.so.1";

struct Function {
  std::string_view name;
  std::atomic<int64_t> calls = 0;
  void* next = nullptr;
};

constexpr size_t kFunctions = sizeof(Driver) / sizeof(void*);

class Functions {
 public:
  Functions() {
    void* const next = dlopen(kNext, RTLD_NOW | RTLD_LOCAL);
    if (next == nullptr) {
      std::fprintf(stderr, "failing driver: %s\n", dlerror());
      std::abort();
    }
    size_t i = 0;
    Driver().for_each([&](const auto&, const char* name) {
      all_[i].name = name;
      all_[i++].next = dlsym(next, name);
    });
    if (const char* const planned = std::getenv("TESSERA_FAILING_CALL")) {
      const std::string text = planned;
      name_ = text.substr(0, text.find(':'));
      call_ = std::atoll(text.substr(text.find(':') + 1).c_str());
    }
  }
  ~Functions() {
    const char* const path = std::getenv("TESSERA_COUNTED_CALLS");
    FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    for (const Function& function : all_)
      if (function.calls > 0)
        std::fprintf(file, "%s %lld\n", function.name.data(),
                     static_cast<long long>(function.calls));
    std::fclose(file);
  }

  // Counts a call. Returns whether it fails.
  bool fails(int number) {
    Function& function = all_[static_cast<size_t>(number)];
    return ++function.calls == call_ && function.name == name_;
  }
  void* next(int number) const { return all_[static_cast<size_t>(number)].next; }

 private:
  std::array<Function, kFunctions> all_;
  std::string name_;
  int64_t call_ = 0;
};

Functions& functions() {
  static Functions functions;
  return functions;
}

// Numbers of the functions, in the order of the driver's members.
enum Number {
#define TESSERA_FUNCTION(function) kNumber_##function,
#include "plugins/cuda/device/driver_functions.inc"
#undef TESSERA_FUNCTION
};

template <int number, typename Pointer>
struct Wrapper;
template <int number, typename... Arguments>
struct Wrapper<number, CUresult (*)(Arguments...)> {
  static CUresult call(Arguments... arguments) {
    const bool fails = functions().fails(number);
    // cuStreamEndCapture ends the capture even if it fails.
    if (fails && number != kNumber_cuStreamEndCapture) return CUDA_ERROR_UNKNOWN;
    const auto next = reinterpret_cast<CUresult (*)(Arguments...)>(functions().next(number));
    const CUresult result = next(arguments...);
    return fails ? CUDA_ERROR_UNKNOWN : result;
  }
};

}  // namespace
}  // namespace tessera::cuda

// Defines resolve_NAME(), which the loader calls for the address of NAME.
#define TESSERA_FUNCTION(function)                                    \
  extern "C" decltype(&::function) resolve_##function() {             \
    return &tessera::cuda::Wrapper<tessera::cuda::kNumber_##function, \
                                   decltype(&::function)>::call;      \
  }                                                                   \
  extern "C" [[gnu::ifunc("resolve_" #function)]] decltype(::function) function;
#include "plugins/cuda/device/driver_functions.inc"
