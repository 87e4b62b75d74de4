// SPDX-License-Identifier: Apache-2.0
// A graph of cuDNN operations on tensors of four axes, and its execution plan: one kernel of the
// library, or a few, for the whole graph. https://docs.nvidia.com/deeplearning/cudnn describes the
// operations of the backend API.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "plugins/cuda/attention/cudnn_library.h"

namespace tessera::cuda {

using CudnnExtents = std::array<int64_t, 4>;
// Strides of a tensor whose last axis is contiguous.
CudnnExtents packed_strides(const CudnnExtents& sizes);

// A tensor of a graph, which owns the descriptor.
struct CudnnTensor {
  cudnnBackendDescriptor_t descriptor = nullptr;
  CudnnExtents sizes = {}, strides = {};
};

// A finalized plan.
class CudnnPlan {
 public:
  // Bytes for the library and for tensors in scratch memory; a multiple of kAlignment.
  int64_t scratch_bytes() const { return workspace_at_ + workspace_bytes_; }
  // Enqueues the graph on the handle's stream. Operands in the order of CudnnGraph::operand(), at
  // multiples of 16 bytes; scratch memory at a multiple of kAlignment.
  void run(cudnnHandle_t handle, std::span<const CUdeviceptr> operands, CUdeviceptr scratch) const;

  static constexpr int64_t kAlignment = 256;

 private:
  friend class CudnnGraph;
  explicit CudnnPlan(const Cudnn& library)
      : library_(library), plan_(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {}

  const Cudnn& library_;
  std::deque<CudnnDescriptor> parts_;  // What the plan refers to.
  CudnnDescriptor plan_;
  std::vector<int64_t> ids_;         // Ids of operands, tensors in scratch memory, and scalars.
  std::vector<int64_t> scratch_at_;  // Offsets of tensors in scratch memory.
  std::vector<float> scalars_;
  int64_t workspace_at_ = 0, workspace_bytes_ = 0;
};

class CudnnGraph {
 public:
  explicit CudnnGraph(const Cudnn& library) : library_(library) {}

  // A tensor in memory that run() is given.
  CudnnTensor operand(cudnnDataType_t type, const CudnnExtents& sizes, const CudnnExtents& strides);
  // A packed tensor in scratch memory, which one operation writes and others read.
  CudnnTensor scratch(cudnnDataType_t type, const CudnnExtents& sizes);
  CudnnTensor scalar(float value);
  // A packed intermediate result, which is not in memory.
  CudnnTensor intermediate(cudnnDataType_t type, const CudnnExtents& sizes);

  // mode(x), or mode(x, y), or mode(x, y, condition), of x's sizes; y and condition are broadcast.
  // The library supports the pattern of attention only where x is an intermediate result.
  CudnnTensor pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x, const CudnnTensor& y = {},
                        const CudnnTensor& condition = {});
  void pointwise_into(const CudnnTensor& result, cudnnPointwiseMode_t mode, const CudnnTensor& x,
                      const CudnnTensor& y = {});
  // Comparisons, which give booleans, and positions along an axis of x, as 32-bit integers.
  CudnnTensor compare(cudnnPointwiseMode_t mode, const CudnnTensor& x, const CudnnTensor& y);
  CudnnTensor positions(const CudnnTensor& x, int64_t axis);
  // Products of the last two axes. An axis before them of b may be a divisor of a's: then several
  // matrices of a are multiplied by the same of b.
  void product(const CudnnTensor& a, const CudnnTensor& b, const CudnnTensor& result);
  // Reduces the axes on which the result is smaller, in groups where its size is not 1.
  void reduce(cudnnReduceTensorOp_t reduction, const CudnnTensor& x, const CudnnTensor& result);
  // The matrices of x, transposed: no data moves. In the dtype `type`.
  CudnnTensor transposed(const CudnnTensor& x, cudnnDataType_t type);

  // The library's first choice for this GPU; with kSame the first that has the same bits in every
  // run. nullopt if it does not support the graph. Once, since the plan takes the descriptors.
  enum class Bits { kSame, kAny };
  std::optional<CudnnPlan> plan(const CudnnTarget& target, Bits bits);

 private:
  enum class Storage { kMemory, kValue, kNone };
  CudnnTensor tensor(cudnnDataType_t type, const CudnnExtents& sizes, const CudnnExtents& strides,
                     Storage storage);
  struct PointwiseUse {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    std::optional<int64_t> axis;
  };
  void add_pointwise(const PointwiseUse& use, const CudnnTensor& x, const CudnnTensor& y,
                     const CudnnTensor& condition, const CudnnTensor& result);
  CudnnDescriptor& part(cudnnBackendDescriptorType_t type);
  std::vector<CudnnDescriptor> configurations(const CudnnTarget& target);

  const Cudnn& library_;
  std::deque<CudnnDescriptor> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t last_id_ = 0, scratch_bytes_ = 0;
  std::vector<int64_t> operand_ids_, scratch_ids_, scratch_at_, scalar_ids_;
  std::vector<float> scalars_;
};

}  // namespace tessera::cuda
