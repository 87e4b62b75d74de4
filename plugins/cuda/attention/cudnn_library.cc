// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/cudnn_library.h"

#include <optional>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/library.h"
#include "plugins/cuda/device/optional_library.h"

namespace tessera::cuda {
namespace {

// The first that makes plans for a described GPU, as our tests do.
constexpr size_t kOldestVersion = 90800;

Cudnn cudnn_functions(const Library& library) {
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

Cudnn load_cudnn() {
  Cudnn table;
  std::optional<Library> library;
  try {
    library.emplace(library_files("libcudnn.so.9", kCudnnVariable));
    table = cudnn_functions(*library);
  } catch (const Error& error) {
    fail("no cuDNN: {}", error.what());
  }
  if (table.cudnnGetVersion() < kOldestVersion)
    fail("cuDNN is {}, expected 9.8.0 or newer", table.version());
  note_library(kCudnnName, table.version(), *library);
  return table;
}

}  // namespace

void Cudnn::check(cudnnStatus_t status, std::string_view what) const {
  if (status != CUDNN_STATUS_SUCCESS) fail("{}: {}", what, cudnnGetErrorString(status));
}

std::string Cudnn::version() const { return version_text(cudnnGetVersion()); }

const Cudnn* find_cudnn(std::string& why) {
  static auto* const library = new OptionalLibrary<Cudnn>(kCudnnVariable, load_cudnn);
  return library->find(why);
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
