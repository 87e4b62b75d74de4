// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::cuda {
namespace {

constexpr int64_t kTensorAlignment = 16;

int64_t bytes_of(cudnnDataType_t type, const CudnnExtents& sizes) {
  const int64_t elements = sizes[0] * sizes[1] * sizes[2] * sizes[3];
  return elements * (type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
}

int64_t padded(int64_t bytes) {
  return (bytes + CudnnPlan::kAlignment - 1) / CudnnPlan::kAlignment * CudnnPlan::kAlignment;
}

// Whether the library says that the kernels of a configuration are deterministic.
bool has_same_bits(const Cudnn& library, const CudnnDescriptor& configuration) {
  const CudnnDescriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t place = engine.get();
  configuration.read(CUDNN_ATTR_ENGINECFG_ENGINE, std::span(&place, 1));
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes = {};
  const int64_t count =
      engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, std::span<cudnnBackendNumericalNote_t>(notes));
  return std::ranges::count(std::span(notes).first(static_cast<size_t>(count)),
                            CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == 0;
}

}  // namespace

CudnnExtents packed_strides(const CudnnExtents& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

void CudnnPlan::run(cudnnHandle_t handle, std::span<const CUdeviceptr> operands,
                    CUdeviceptr scratch) const {
  std::vector<CudnnAddress> addresses;
  for (const CUdeviceptr operand : operands) addresses.push_back(CudnnAddress{operand});
  for (const int64_t at : scratch_at_)
    addresses.push_back(CudnnAddress{scratch + static_cast<CUdeviceptr>(at)});
  for (const float& scalar : scalars_)  // Read from host memory before the call returns.
    addresses.push_back(CudnnAddress{reinterpret_cast<uintptr_t>(&scalar)});
  CudnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids_));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<const CudnnAddress>(addresses));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
           CudnnAddress{scratch + static_cast<CUdeviceptr>(workspace_at_)});
  pack.finalize("naming the operands of a cuDNN plan");
  library_.check(library_.cudnnBackendExecute(handle, plan_.get(), pack.get()),
                 "running a cuDNN plan");
}

CudnnDescriptor& CudnnGraph::part(cudnnBackendDescriptorType_t type) {
  return parts_.emplace_back(library_, type);
}

CudnnTensor CudnnGraph::tensor(cudnnDataType_t type, const CudnnExtents& sizes,
                               const CudnnExtents& strides, Storage storage) {
  CudnnDescriptor& made = part(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, ++last_id_);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(sizes));
  made.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(strides));
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment);
  made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, storage == Storage::kNone);
  made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, storage == Storage::kValue);
  made.finalize("describing a tensor to cuDNN");
  return {made.get(), sizes, strides};
}

CudnnTensor CudnnGraph::operand(cudnnDataType_t type, const CudnnExtents& sizes,
                                const CudnnExtents& strides) {
  const CudnnTensor made = tensor(type, sizes, strides, Storage::kMemory);
  operand_ids_.push_back(last_id_);
  return made;
}

CudnnTensor CudnnGraph::scratch(cudnnDataType_t type, const CudnnExtents& sizes) {
  const CudnnTensor made = tensor(type, sizes, packed_strides(sizes), Storage::kMemory);
  scratch_ids_.push_back(last_id_);
  scratch_at_.push_back(scratch_bytes_);
  scratch_bytes_ += padded(bytes_of(type, sizes));
  return made;
}

CudnnTensor CudnnGraph::scalar(float value) {
  const CudnnTensor made = tensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, Storage::kValue);
  scalar_ids_.push_back(last_id_);
  scalars_.push_back(value);
  return made;
}

CudnnTensor CudnnGraph::intermediate(cudnnDataType_t type, const CudnnExtents& sizes) {
  return tensor(type, sizes, packed_strides(sizes), Storage::kNone);
}

void CudnnGraph::add_pointwise(const PointwiseUse& use, const CudnnTensor& x, const CudnnTensor& y,
                               const CudnnTensor& condition, const CudnnTensor& result) {
  CudnnDescriptor& kind = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, use.mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, use.compute);
  if (use.axis) kind.set(CUDNN_ATTR_POINTWISE_AXIS, *use.axis);
  kind.finalize("describing an elementwise operation to cuDNN");
  const cudnnBackendDescriptor_t made = kind.get();
  CudnnDescriptor& operation = part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, made);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
  if (y.descriptor != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y.descriptor);
  if (condition.descriptor != nullptr)
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result.descriptor);
  operation.finalize("adding an elementwise operation for cuDNN");
  operations_.push_back(operation.get());
}

CudnnTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x,
                                  const CudnnTensor& y, const CudnnTensor& condition) {
  const CudnnTensor result = intermediate(CUDNN_DATA_FLOAT, x.sizes);
  add_pointwise({.mode = mode}, x, y, condition, result);
  return result;
}

void CudnnGraph::pointwise_into(const CudnnTensor& result, cudnnPointwiseMode_t mode,
                                const CudnnTensor& x, const CudnnTensor& y) {
  add_pointwise({.mode = mode}, x, y, {}, result);
}

CudnnTensor CudnnGraph::compare(cudnnPointwiseMode_t mode, const CudnnTensor& x,
                                const CudnnTensor& y) {
  const CudnnTensor result = intermediate(CUDNN_DATA_BOOLEAN, x.sizes);
  add_pointwise({.mode = mode, .compute = CUDNN_DATA_BOOLEAN}, x, y, {}, result);
  return result;
}

CudnnTensor CudnnGraph::positions(const CudnnTensor& x, int64_t axis) {
  const CudnnTensor result = intermediate(CUDNN_DATA_INT32, x.sizes);
  add_pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .axis = axis}, x, {}, {}, result);
  return result;
}

void CudnnGraph::product(const CudnnTensor& a, const CudnnTensor& b, const CudnnTensor& result) {
  CudnnDescriptor& kind = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("describing a matrix product to cuDNN");
  const cudnnBackendDescriptor_t made = kind.get();
  CudnnDescriptor& operation = part(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, made);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, result.descriptor);
  operation.finalize("adding a matrix product for cuDNN");
  operations_.push_back(operation.get());
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t reduction, const CudnnTensor& x,
                        const CudnnTensor& result) {
  CudnnDescriptor& kind = part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, reduction);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("describing a reduction to cuDNN");
  const cudnnBackendDescriptor_t made = kind.get();
  CudnnDescriptor& operation = part(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, made);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, result.descriptor);
  operation.finalize("adding a reduction for cuDNN");
  operations_.push_back(operation.get());
}

CudnnTensor CudnnGraph::transposed(const CudnnTensor& x, cudnnDataType_t type) {
  CudnnTensor result = x;
  std::swap(result.sizes[2], result.sizes[3]);
  std::swap(result.strides[2], result.strides[3]);
  result = tensor(type, result.sizes, result.strides, Storage::kNone);
  CudnnDescriptor& operation = part(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, result.descriptor);
  operation.finalize("adding a transposition for cuDNN");
  operations_.push_back(operation.get());
  return result;
}

std::vector<CudnnDescriptor> CudnnGraph::configurations(const CudnnTarget& target) {
  CudnnDescriptor& graph = part(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const cudnnBackendDescriptor_t>(operations_));
  if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  graph.finalize("making a graph for cuDNN");
  const cudnnBackendDescriptor_t made = graph.get();
  CudnnDescriptor& choice = part(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  choice.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, made);
  choice.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.description != nullptr)
    choice.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.description);
  if (choice.finalize() != CUDNN_STATUS_SUCCESS) return {};  // It knows no such pattern.
  const auto results = CUDNN_ATTR_ENGINEHEUR_RESULTS;
  const int64_t count = choice.read(results, std::span<cudnnBackendDescriptor_t>());
  std::vector<CudnnDescriptor> made_configurations;
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (int64_t i = 0; i < count; ++i)
    pointers.push_back(
        made_configurations.emplace_back(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count > 0) choice.read(results, std::span(pointers));
  return made_configurations;
}

std::optional<CudnnPlan> CudnnGraph::plan(const CudnnTarget& target, Bits bits) {
  for (CudnnDescriptor& configuration : configurations(target)) {
    if (bits == Bits::kSame && !has_same_bits(library_, configuration)) continue;
    CudnnPlan made(library_);
    made.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (target.description != nullptr)
      made.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.description);
    else
      made.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
    if (made.plan_.finalize() != CUDNN_STATUS_SUCCESS) continue;
    made.plan_.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, std::span(&made.workspace_bytes_, 1));
    for (const auto& ids : {operand_ids_, scratch_ids_, scalar_ids_})
      made.ids_.insert(made.ids_.end(), ids.begin(), ids.end());
    made.scratch_at_ = scratch_at_;
    made.scalars_ = scalars_;
    made.workspace_at_ = scratch_bytes_;
    made.parts_ = std::move(parts_);
    made.parts_.push_back(std::move(configuration));
    return made;
  }
  return std::nullopt;
}

}  // namespace tessera::cuda
