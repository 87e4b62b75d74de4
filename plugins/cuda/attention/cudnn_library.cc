// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/cudnn_library.h"

#include <cstdlib>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/library.h"

namespace tessera::cuda {
namespace {

constexpr size_t kOldestVersion =
    90800;  // The first that makes plans for a described GPU, as our tests do.

Cudnn load_functions(const Library& library) {
  Cudnn table;
  library.find(table.cudnnCreate, "cudnnCreate");
  library.find(table.cudnnDestroy, "cudnnDestroy");
  library.find(table.cudnnSetStream, "cudnnSetStream");
  library.find(table.cudnnGetVersion, "cudnnGetVersion");
  library.find(table.cudnnGetErrorString, "cudnnGetErrorString");
  library.find(table.cudnnBackendCreateDescriptor, "cudnnBackendCreateDescriptor");
  library.find(table.cudnnBackendDestroyDescriptor, "cudnnBackendDestroyDescriptor");
  library.find(table.cudnnBackendSetAttribute, "cudnnBackendSetAttribute");
  library.find(table.cudnnBackendGetAttribute, "cudnnBackendGetAttribute");
  library.find(table.cudnnBackendFinalize, "cudnnBackendFinalize");
  library.find(table.cudnnBackendExecute, "cudnnBackendExecute");
  return table;
}

// Null, and why, if the library cannot be used.
const Cudnn* load_cudnn(std::string& why) {
  if (std::getenv(kCudnnVariable) == nullptr && std::getenv(kDriverVariable) != nullptr) {
    why = fmt::format("{} names another driver, which NVIDIA's libraries do not use",
                      kDriverVariable);
    return nullptr;
  }
  try {
    const Cudnn table = load_functions(Library(library_files("libcudnn.so.9", kCudnnVariable)));
    if (table.cudnnGetVersion() >= kOldestVersion) return new Cudnn(table);  // Kept loaded.
    why = fmt::format("cuDNN is {}, expected 9.8.0 or newer", table.version());
  } catch (const Error& error) {
    why = fmt::format("no cuDNN: {}", error.what());
  }
  return nullptr;
}

}  // namespace

void Cudnn::check(cudnnStatus_t status, std::string_view what) const {
  if (status != CUDNN_STATUS_SUCCESS) fail("{}: {}", what, cudnnGetErrorString(status));
}

std::string Cudnn::version() const {
  const size_t version = cudnnGetVersion();  // 91900
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

const Cudnn* find_cudnn(std::string& why) {
  struct Loaded {
    const Cudnn* library = nullptr;
    std::string why;
  };
  static std::mutex mutex;
  static std::map<std::string, Loaded> loaded;  // By the file that was asked for.
  const char* const named = std::getenv(kCudnnVariable);
  const std::lock_guard lock(mutex);
  const auto [each, is_new] = loaded.try_emplace(named == nullptr ? "" : named);
  if (is_new) each->second.library = load_cudnn(each->second.why);
  why = each->second.why;
  return each->second.library;
}

CudnnDescriptor::CudnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type)
    : library_(&library), descriptor_(nullptr, library.cudnnBackendDestroyDescriptor) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  library.check(library.cudnnBackendCreateDescriptor(type, &descriptor),
                "making a descriptor for cuDNN");
  descriptor_.reset(descriptor);
}

CudnnDescriptor cudnn_description(const Cudnn& library, std::string_view json) {
  CudnnDescriptor description(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  description.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json));
  description.finalize("describing a GPU to cuDNN");
  return description;
}

CudnnHandle::CudnnHandle(Context& context) {
  library_ = find_cudnn(why_not_);
  if (library_ == nullptr) return;
  context.make_current();
  const cudnnStatus_t status = library_->cudnnCreate(&handle_);
  if (status == CUDNN_STATUS_SUCCESS) return;
  handle_ = nullptr;
  why_not_ = fmt::format("cuDNN {} cannot use this GPU: {}", library_->version(),
                         library_->cudnnGetErrorString(status));
}

CudnnHandle::~CudnnHandle() {
  if (handle_ != nullptr) library_->cudnnDestroy(handle_);
}

}  // namespace tessera::cuda
