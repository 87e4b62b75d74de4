// SPDX-License-Identifier: Apache-2.0
// cuDNN (libcudnn.so.9), loaded at run time, and the descriptors of its backend API.
#pragma once

#include <cudnn.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>

#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// The functions we call, by their names.
struct Cudnn {
  decltype(&::cudnnCreate) cudnnCreate = nullptr;
  decltype(&::cudnnDestroy) cudnnDestroy = nullptr;
  decltype(&::cudnnSetStream) cudnnSetStream = nullptr;
  decltype(&::cudnnGetVersion) cudnnGetVersion = nullptr;
  decltype(&::cudnnGetErrorString) cudnnGetErrorString = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) cudnnBackendCreateDescriptor = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) cudnnBackendDestroyDescriptor = nullptr;
  decltype(&::cudnnBackendSetAttribute) cudnnBackendSetAttribute = nullptr;
  decltype(&::cudnnBackendGetAttribute) cudnnBackendGetAttribute = nullptr;
  decltype(&::cudnnBackendFinalize) cudnnBackendFinalize = nullptr;
  decltype(&::cudnnBackendExecute) cudnnBackendExecute = nullptr;

  // Error "<what>: CUDNN_STATUS_…" unless `status` is success.
  void check(cudnnStatus_t status, std::string_view what) const;
  std::string version() const;  // "9.19.0"
};

// The file that is opened instead, if this environment variable is set.
inline constexpr const char* kCudnnVariable = "TESSERA_CUDNN";

// Null if the library cannot be used; `why` then says so in one sentence (OptionalLibrary).
const Cudnn* find_cudnn(std::string& why);

// The address of an operand as an attribute; cudnnBackendDescriptor_t is a void* as well.
enum class CudnnAddress : uintptr_t {};

// A descriptor of the backend API: attributes are set, then it is finalized, then it is used.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  cudnnStatus_t finalize() { return library_->cudnnBackendFinalize(get()); }
  // Error that names `what` if the library refuses the descriptor.
  void finalize(std::string_view what) { library_->check(finalize(), what); }

  template <typename T>
  void set(cudnnBackendAttributeName_t attribute, std::span<const T> values) {
    library_->check(
        library_->cudnnBackendSetAttribute(get(), attribute, attribute_type<T>(),
                                           static_cast<int64_t>(values.size()), values.data()),
        "setting an attribute for cuDNN");
  }
  template <typename T>
  requires(!std::ranges::range<T>) void set(cudnnBackendAttributeName_t attribute, const T& value) {
    set(attribute, std::span<const T>(&value, 1));
  }
  void set(cudnnBackendAttributeName_t attribute, const CudnnDescriptor& value) {
    set(attribute, value.get());
  }

  // Reads up to values.size() values; the number that there are.
  template <typename T>
  int64_t read(cudnnBackendAttributeName_t attribute, std::span<T> values) const {
    int64_t count = 0;
    library_->check(library_->cudnnBackendGetAttribute(get(), attribute, attribute_type<T>(),
                                                       static_cast<int64_t>(values.size()), &count,
                                                       values.data()),
                    "reading an attribute of cuDNN");
    return count;
  }

 private:
  template <typename T>
  static constexpr cudnnBackendAttributeType_t attribute_type() {
    if constexpr (std::same_as<T, int64_t>) return CUDNN_TYPE_INT64;
    if constexpr (std::same_as<T, bool>) return CUDNN_TYPE_BOOLEAN;
    if constexpr (std::same_as<T, char>) return CUDNN_TYPE_CHAR;
    if constexpr (std::same_as<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
    if constexpr (std::same_as<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
    if constexpr (std::same_as<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
    if constexpr (std::same_as<T, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
    if constexpr (std::same_as<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
    if constexpr (std::same_as<T, cudnnBackendNumericalNote_t>) return CUDNN_TYPE_NUMERICAL_NOTE;
    if constexpr (std::same_as<T, CudnnAddress>) return CUDNN_TYPE_VOID_PTR;
    return CUDNN_TYPE_BACKEND_DESCRIPTOR;
  }

  const Cudnn* library_;
  std::unique_ptr<void, cudnnStatus_t (*)(cudnnBackendDescriptor_t)> descriptor_;
};

// The GPU that plans are made for: the handle's, or without a handle the one that `description`
// describes. A plan for a description shows what the library supports, and its memory.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* description = nullptr;
};
// Makes it from the JSON text of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
CudnnDescriptor cudnn_description(const Cudnn& library, std::string_view json);

// The library's handle on a GPU, if both are usable: a part of the context.
class CudnnHandle {
 public:
  explicit CudnnHandle(Context& context);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  const Cudnn* library() const { return handle_ == nullptr ? nullptr : library_; }
  const std::string& why_not() const { return why_not_; }  // If library() is null.
  cudnnHandle_t get() const { return handle_; }

 private:
  const Cudnn* library_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  std::string why_not_;
};

}  // namespace tessera::cuda
