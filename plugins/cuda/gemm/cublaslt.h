// SPDX-License-Identifier: Apache-2.0
// cuBLASLt (libcublasLt.so.13 or .12), loaded at run time.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/device/context.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {

// The functions we call, by their names.
struct CublasLt {
  decltype(&::cublasLtCreate) cublasLtCreate = nullptr;
  decltype(&::cublasLtDestroy) cublasLtDestroy = nullptr;
  decltype(&::cublasLtGetVersion) cublasLtGetVersion = nullptr;
  decltype(&::cublasLtGetStatusName) cublasLtGetStatusName = nullptr;
  decltype(&::cublasLtMatmulDescCreate) cublasLtMatmulDescCreate = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) cublasLtMatmulDescDestroy = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) cublasLtMatmulDescSetAttribute = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) cublasLtMatrixLayoutCreate = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) cublasLtMatrixLayoutDestroy = nullptr;
  decltype(&::cublasLtMatrixLayoutSetAttribute) cublasLtMatrixLayoutSetAttribute = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) cublasLtMatmulPreferenceCreate = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) cublasLtMatmulPreferenceDestroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) cublasLtMatmulPreferenceSetAttribute = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) cublasLtMatmulAlgoGetHeuristic = nullptr;
  decltype(&::cublasLtMatmulAlgoCheck) cublasLtMatmulAlgoCheck = nullptr;
  decltype(&::cublasLtMatmul) cublasLtMatmul = nullptr;

  // Error "<what>: CUBLAS_STATUS_…" unless `status` is success.
  void check(cublasStatus_t status, std::string_view what) const;
  std::string version() const;  // "13.1.0"
};

// The file that is opened instead, if this environment variable is set.
inline constexpr const char* kCublasLtVariable = "TESSERA_CUBLASLT";

// Null if the library cannot be used; `why` then says so in one sentence (OptionalLibrary).
const CublasLt* find_cublaslt(std::string& why);

// The library's handle on a GPU, if both are usable: a part of the context.
class CublasLtHandle {
 public:
  explicit CublasLtHandle(Context& context);
  ~CublasLtHandle();
  CublasLtHandle(const CublasLtHandle&) = delete;
  CublasLtHandle& operator=(const CublasLtHandle&) = delete;

  const CublasLt* library() const { return handle_ == nullptr ? nullptr : library_; }
  const std::string& why_not() const { return why_not_; }  // If library() is null.
  cublasLtHandle_t get() const { return handle_; }

 private:
  const CublasLt* library_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  std::string why_not_;
};

// Null if the library has no algorithm for this product and epilogue.
std::unique_ptr<Product> make_cublaslt_product(Context& context, const ProductShape& shape,
                                               const ProductSettings& settings);

// A product as cuBLASLt takes it. It is column-major: our row-major C is the transpose of its
// result, so its A is our B and its B our A. Layouts and descriptor live as long as this object.
class CublasLtProblem {
 public:
  CublasLtProblem(const CublasLt& library, const ProductShape& shape);
  ~CublasLtProblem();
  CublasLtProblem(const CublasLtProblem&) = delete;
  CublasLtProblem& operator=(const CublasLtProblem&) = delete;

  // Up to `most` algorithms for operands aligned to 16 bytes, the best by the heuristic first.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(cublasLtHandle_t handle, int most,
                                                          int64_t workspace_bytes) const;
  // Whether the library can run this algorithm here; for one that was read from a file.
  bool accepts(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm,
               int64_t workspace_bytes) const;
  cublasStatus_t run(cublasLtHandle_t handle, CUstream stream, const ProductOperands& operands,
                     const cublasLtMatmulAlgo_t& algorithm, CUdeviceptr workspace,
                     int64_t workspace_bytes);

 private:
  cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t leading,
                                int64_t stride) const;
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value);
  void set_epilogue();
  void set_inverse_scales(CUdeviceptr scales);

  const CublasLt& library_;
  ProductShape shape_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

}  // namespace tessera::cuda
