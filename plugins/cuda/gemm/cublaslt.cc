// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/cublaslt.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/driver.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/library.h"
#include "plugins/cuda/device/optional_library.h"
#include "plugins/cuda/gemm/fp8_parameters.h"

namespace tessera::cuda {
namespace {

CublasLt cublaslt_functions(const Library& library) {
  CublasLt table;
  library.find(table.cublasLtCreate, "cublasLtCreate");
  library.find(table.cublasLtDestroy, "cublasLtDestroy");
  library.find(table.cublasLtGetVersion, "cublasLtGetVersion");
  library.find(table.cublasLtGetStatusName, "cublasLtGetStatusName");
  library.find(table.cublasLtMatmulDescCreate, "cublasLtMatmulDescCreate");
  library.find(table.cublasLtMatmulDescDestroy, "cublasLtMatmulDescDestroy");
  library.find(table.cublasLtMatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  library.find(table.cublasLtMatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
  library.find(table.cublasLtMatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
  library.find(table.cublasLtMatrixLayoutSetAttribute, "cublasLtMatrixLayoutSetAttribute");
  library.find(table.cublasLtMatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
  library.find(table.cublasLtMatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  library.find(table.cublasLtMatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
  library.find(table.cublasLtMatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.find(table.cublasLtMatmulAlgoCheck, "cublasLtMatmulAlgoCheck");
  library.find(table.cublasLtMatmul, "cublasLtMatmul");
  return table;
}

CublasLt load_cublaslt() {
  try {
    const Library library(toolkit_library_files("cublasLt", kCublasLtVariable));
    const CublasLt table = cublaslt_functions(library);
    note_library(kCublasLtName, table.version(), library);
    return table;
  } catch (const Error& error) {
    fail("no cuBLASLt: {}", error.what());
  }
}

cudaDataType_t cublaslt_type(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}
cudaDataType_t cublaslt_type(Float8 format) {
  return format == Float8::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

cublasLtEpilogue_t cublaslt_epilogue(const Epilogue& epilogue) {
  switch (epilogue.activation) {
    case Activation::kGelu:
      if (epilogue.saves_operand)
        return epilogue.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return epilogue.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Activation::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return epilogue.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

constexpr uint32_t kOperandAlignment = 16;

}  // namespace

void CublasLt::check(cublasStatus_t status, std::string_view what) const {
  if (status != CUBLAS_STATUS_SUCCESS) fail("{}: {}", what, cublasLtGetStatusName(status));
}

std::string CublasLt::version() const { return version_text(cublasLtGetVersion()); }

const CublasLt* find_cublaslt(std::string& why) {
  static auto* const library = new OptionalLibrary<CublasLt>(kCublasLtVariable, load_cublaslt);
  return library->find(why);
}

CublasLtHandle::CublasLtHandle(Context& context) {
  library_ = find_cublaslt(why_not_);
  if (library_ == nullptr) return;
  context.make_current();
  const cublasStatus_t status = library_->cublasLtCreate(&handle_);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  handle_ = nullptr;
  why_not_ = fmt::format("cuBLASLt {} cannot use this GPU: {}", library_->version(),
                         library_->cublasLtGetStatusName(status));
}

CublasLtHandle::~CublasLtHandle() {
  if (handle_ != nullptr) library_->cublasLtDestroy(handle_);
}

CublasLtProblem::CublasLtProblem(const CublasLt& library, const ProductShape& shape)
    : library_(library), shape_(shape) {
  const GemmShape& s = shape.matrices;
  library.check(library.cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                "describing a matrix product");
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_epilogue();
  if (shape.fp8) set_inverse_scales(kOperandAlignment);
  const cudaDataType_t b = shape.fp8 ? cublaslt_type(shape.fp8->b) : cublaslt_type(s.input);
  const cudaDataType_t a = shape.fp8 ? cublaslt_type(shape.fp8->a) : cublaslt_type(s.input);
  first_ = s.b.transposed ? layout(b, s.k, s.n, s.b.leading, shape.b_stride)
                          : layout(b, s.n, s.k, s.b.leading, shape.b_stride);
  second_ = s.a.transposed ? layout(a, s.m, s.k, s.a.leading, shape.a_stride)
                           : layout(a, s.k, s.m, s.a.leading, shape.a_stride);
  result_ = layout(cublaslt_type(s.output), s.n, s.m, s.c_leading, shape.c_stride);
}

CublasLtProblem::~CublasLtProblem() {
  for (const cublasLtMatrixLayout_t each : {first_, second_, result_})
    if (each != nullptr) library_.cublasLtMatrixLayoutDestroy(each);
  if (description_ != nullptr) library_.cublasLtMatmulDescDestroy(description_);
}

cublasLtMatrixLayout_t CublasLtProblem::layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                               int64_t leading, int64_t stride) const {
  constexpr std::string_view kWhat = "describing a matrix";
  cublasLtMatrixLayout_t made = nullptr;
  library_.check(library_.cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows),
                                                     static_cast<uint64_t>(columns), leading),
                 kWhat);
  const auto batches = static_cast<int32_t>(shape_.batches);
  library_.check(library_.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                           &batches, sizeof(batches)),
                 kWhat);
  library_.check(library_.cublasLtMatrixLayoutSetAttribute(
                     made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
                 kWhat);
  return made;
}

template <typename T>
void CublasLtProblem::set(cublasLtMatmulDescAttributes_t attribute, T value) {
  library_.check(
      library_.cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)),
      "describing a matrix product");
}

// Sets the inverse scales of our A and B; its A is our B. CUBLASLT_MATMUL_DESC_FAST_ACCUM stays
// off: the tensor cores of Hopper add fewer bits than f32 has, so that the library moves their sums
// to f32 often.
void CublasLtProblem::set_inverse_scales(CUdeviceptr scales) {
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales + kScaleStride * sizeof(float));
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales);
}

// The operands of the epilogue are set before each run. The heuristic uses their addresses for the
// alignment only.
void CublasLtProblem::set_epilogue() {
  const Epilogue& epilogue = shape_.epilogue;
  const CUdeviceptr aligned = kOperandAlignment;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(cublaslt_epilogue(epilogue)));
  if (epilogue.bias) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<int32_t>(cublaslt_type(shape_.matrices.output)));
  }
  if (!epilogue.saves_operand && epilogue.activation != Activation::kGeluGradient) return;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape_.matrices.c_leading);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, shape_.c_stride);
}

std::vector<cublasLtMatmulHeuristicResult_t> CublasLtProblem::candidates(
    cublasLtHandle_t handle, int most, int64_t workspace_bytes) const {
  cublasLtMatmulPreference_t preference = nullptr;
  constexpr std::string_view kWhat = "asking cuBLASLt for algorithms";
  library_.check(library_.cublasLtMatmulPreferenceCreate(&preference), kWhat);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    library_.check(
        library_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        kWhat);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  // The other schemes add parts of a sum in the dtype of the result.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, kOperandAlignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      library_.cublasLtMatmulAlgoGetHeuristic(handle, description_, first_, second_, result_,
                                              result_, preference, most, results.data(), &found);
  library_.cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS) found = 0;  // It has none.
  results.resize(static_cast<size_t>(found));
  std::erase_if(results, [&](const cublasLtMatmulHeuristicResult_t& each) {
    return each.state != CUBLAS_STATUS_SUCCESS ||
           static_cast<int64_t>(each.workspaceSize) > workspace_bytes;
  });
  return results;
}

bool CublasLtProblem::accepts(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm,
                              int64_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = library_.cublasLtMatmulAlgoCheck(
      handle, description_, first_, second_, result_, result_, &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         static_cast<int64_t>(result.workspaceSize) <= workspace_bytes;
}

cublasStatus_t CublasLtProblem::run(cublasLtHandle_t handle, CUstream stream,
                                    const ProductOperands& operands,
                                    const cublasLtMatmulAlgo_t& algorithm, CUdeviceptr workspace,
                                    int64_t workspace_bytes) {
  const Epilogue& epilogue = shape_.epilogue;
  if (shape_.fp8) set_inverse_scales(operands.inverse_scales);
  if (epilogue.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (epilogue.saves_operand) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.saved);
  if (epilogue.activation == Activation::kGeluGradient)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.slopes);
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  const float one = 1.0f, beta = epilogue.adds ? 1.0f : 0.0f;
  const CUdeviceptr addend = epilogue.adds ? operands.addend : operands.c;
  return library_.cublasLtMatmul(handle, description_, &one, pointer(operands.b), first_,
                                 pointer(operands.a), second_, &beta, pointer(addend), result_,
                                 pointer(operands.c), result_, &algorithm, pointer(workspace),
                                 static_cast<size_t>(workspace_bytes), stream);
}

}  // namespace tessera::cuda
