// SPDX-License-Identifier: Apache-2.0
// One GPU as this process uses it: its primary context, what it can do, and its kernels' code.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <typeindex>

#include "plugins/cuda/device/driver.h"

namespace tessera::cuda {

// A device function and its name for error messages.
struct Function {
  CUfunction handle = nullptr;
  std::string name;
};

// Blocks of a grid, threads of a block, and bytes of dynamic shared memory.
struct LaunchShape {
  int64_t blocks_x = 1, blocks_y = 1, blocks_z = 1;
  int threads = 256;
  int shared_bytes = 0;
};

class Context {
 public:
  // GPU `ordinal` of those that the driver shows. Error, in terms of the user, if it does not
  // exist.
  explicit Context(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return driver_; }
  CUdevice device() const { return device_; }
  CUcontext handle() const { return context_; }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  int compute_capability() const { return capability_; }  // 90 is sm_90.
  int multiprocessors() const { return multiprocessors_; }
  int attribute(CUdevice_attribute attribute) const;

  // Makes this GPU the calling thread's. Every driver call that uses it needs that.
  void make_current() const;
  // Like make_current(), for destructors: false if the driver refuses every call, as after a fault
  // of the GPU, or if give_up() was called.
  bool can_destroy() const;
  // Some work of this GPU may never end, since a peer that it waits for has failed. Releasing what
  // it uses would wait for it, so all is left to the end of the process.
  void give_up() { given_up_ = true; }
  // Throws an Error with the GPU's number unless `result` is CUDA_SUCCESS.
  void check(CUresult result, std::string_view what) const;

  // Function `name` of kernel file `file` ("norm" for kernels/norm.cu). Loaded once. Any thread.
  Function function(std::string_view file, std::string_view name);
  // Function `name` of PTX text that was compiled at run time; `key` identifies the text.
  Function compiled_function(const std::string& key, const std::string& ptx, std::string_view name);

  // Device::permit_nondeterminism()
  void permit_nondeterminism() { deterministic_ = false; }
  bool is_deterministic() const { return deterministic_; }
  // Device::reject_mismatches()
  void reject_mismatches() { rejects_mismatches_ = true; }
  bool rejects_mismatches() const { return rejects_mismatches_; }

  // An object that lives as long as the context, such as a library's handle on this GPU: one of
  // each type, made as T(context) at the first call. Any thread.
  template <typename T>
  T& part() {
    const std::lock_guard lock(parts_mutex_);
    std::shared_ptr<void>& part = parts_[typeid(T)];
    if (!part) part = std::make_shared<T>(*this);
    return *static_cast<T*>(part.get());
  }

 private:
  Function load(const std::string& key, const void* image, std::string_view name);

  const Driver& driver_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::string name_;
  int capability_ = 0, multiprocessors_ = 0;
  std::atomic<bool> given_up_ = false, deterministic_ = true, rejects_mismatches_ = false;
  std::mutex mutex_;  // Guards what follows.
  std::map<std::string, CUmodule, std::less<>> modules_;
  std::recursive_mutex parts_mutex_;  // A part may use another.
  std::map<std::type_index, std::shared_ptr<void>> parts_;
};

// The context of a GPU, which lives while a pointer to it exists: its kernels are loaded once,
// however many devices and communicators use the GPU. Any thread.
std::shared_ptr<Context> shared_context(int ordinal);

// For a loop over `items` in steps of the grid: a thread an item, up to a few waves of blocks.
LaunchShape elementwise_shape(const Context& context, int64_t items);

// Enqueues `function` with these arguments, each of exactly the type of the kernel's parameter.
// Error with the function's name if the driver refuses the launch.
void launch_function(const Context& context, CUstream stream, const Function& function,
                     const LaunchShape& shape, void** arguments);

template <typename... Arguments>
void launch(const Context& context, CUstream stream, const Function& function,
            const LaunchShape& shape, Arguments... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  launch_function(context, stream, function, shape, pointers);
}

}  // namespace tessera::cuda
