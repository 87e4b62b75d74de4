// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/context.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/runtime/comm/transport.h"
#include "plugins/cuda/device/images.h"
#include "plugins/cuda/device/ptx_version.h"

namespace tessera::cuda {

Context::Context(int ordinal) : driver_(load_driver()), ordinal_(ordinal) {
  int count = 0;
  check(driver_.cuDeviceGetCount(&count), "counting GPUs");
  if (ordinal >= count)
    fail(
        "--device=cuda: GPU {} was asked for, but the driver shows {}; use fewer --devices, or see "
        "CUDA_VISIBLE_DEVICES",
        ordinal, count);
  check(driver_.cuDeviceGet(&device_, ordinal), "opening the GPU");
  char name[256] = {};
  check(driver_.cuDeviceGetName(name, sizeof(name), device_), "asking for its name");
  name_ = name;
  capability_ = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  multiprocessors_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  if (capability_ < 80)
    fail("--device=cuda: GPU {} ({}) has compute capability {}.{}, expected 8.0 or newer", ordinal,
         name_, capability_ / 10, capability_ % 10);
  check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "making a context");
}

Context::~Context() {
  if (context_ == nullptr) return;
  if (given_up_) {
    for (auto& [type, part] : parts_) keep_until_exit(std::move(part));
    return;
  }
  const bool usable = can_destroy();
  parts_.clear();
  if (usable)
    for (const auto& [key, module] : modules_) driver_.cuModuleUnload(module);
  driver_.cuDevicePrimaryCtxRelease(device_);
}

bool Context::can_destroy() const {
  return !given_up_ && driver_.cuCtxSetCurrent(context_) == CUDA_SUCCESS;
}

int Context::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  check(driver_.cuDeviceGetAttribute(&value, attribute, device_), "asking for an attribute");
  return value;
}

void Context::make_current() const { check(driver_.cuCtxSetCurrent(context_), "using the GPU"); }

void Context::check(CUresult result, std::string_view what) const {
  if (result != CUDA_SUCCESS) check_cuda(result, fmt::format("GPU {}: {}", ordinal_, what));
}

Function Context::load(const std::string& key, const void* image, std::string_view name) {
  make_current();
  const std::lock_guard lock(mutex_);
  CUmodule& module = modules_[key];
  if (module == nullptr) {
    char log[4096] = {};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    CUresult result = driver_.cuModuleLoadDataEx(&module, image, 2, options, values);
    // There is no machine code for this GPU, and the toolkit is newer than the driver.
    const std::string older =
        result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? oldest_ptx(image) : std::string();
    if (!older.empty())
      result = driver_.cuModuleLoadDataEx(&module, older.c_str(), 2, options, values);
    check(result, fmt::format("loading the kernels '{}' for compute capability {}.{} {}", key,
                              capability_ / 10, capability_ % 10, log));
  }
  Function function{nullptr, fmt::format("{}.{}", key, name)};
  check(driver_.cuModuleGetFunction(&function.handle, module, std::string(name).c_str()),
        fmt::format("finding the kernel {}", function.name));
  // The driver would load it at its first launch, which may wait for all work of the GPU. Beside a
  // collective that waits for other GPUs the run would hang (CUDA's guide, "Lazy loading").
  check(driver_.cuFuncLoad(function.handle), fmt::format("loading {}", function.name));
  // Launches may use all shared memory; without this they may use 48 KiB.
  int fixed = 0;
  check(driver_.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.handle),
        fmt::format("asking for the shared memory of {}", function.name));
  const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  check(driver_.cuFuncSetAttribute(function.handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   most - fixed),
        fmt::format("setting the shared memory of {}", function.name));
  return function;
}

Function Context::function(std::string_view file, std::string_view name) {
  const std::span<const Image> images = kernel_images();
  const auto image = std::find_if(images.begin(), images.end(),
                                  [&](const Image& each) { return each.file == file; });
  CHECK(image != images.end(), "no kernel file {}", file);
  return load(std::string(file), image->fatbin, name);
}

Function Context::compiled_function(const std::string& key, const std::string& ptx,
                                    std::string_view name) {
  return load(key, ptx.c_str(), name);
}

std::shared_ptr<Context> shared_context(int ordinal) {
  static std::mutex mutex;
  static auto* const contexts = new std::map<int, std::weak_ptr<Context>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Context> context = (*contexts)[ordinal].lock();
  if (!context) (*contexts)[ordinal] = context = std::make_shared<Context>(ordinal);
  return context;
}

LaunchShape elementwise_shape(const Context& context, int64_t items) {
  LaunchShape shape;
  const int64_t most = 16LL * context.multiprocessors();
  shape.blocks_x = std::min((items + shape.threads - 1) / shape.threads, most);
  return shape;
}

void launch_function(const Context& context, CUstream stream, const Function& function,
                     const LaunchShape& shape, void** arguments) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0 || shape.blocks_z == 0) return;
  context.check(context.driver().cuLaunchKernel(
                    function.handle, static_cast<unsigned>(shape.blocks_x),
                    static_cast<unsigned>(shape.blocks_y), static_cast<unsigned>(shape.blocks_z),
                    static_cast<unsigned>(shape.threads), 1, 1,
                    static_cast<unsigned>(shape.shared_bytes), stream, arguments, nullptr),
                fmt::format("launching {}", function.name));
}

}  // namespace tessera::cuda
