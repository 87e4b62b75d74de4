// SPDX-License-Identifier: Apache-2.0
// The kernel of einsum: batches of products; operands whose axes form no matrix in memory are
// packed first, as on the CPU (core/backend/cpu/gemm/einsum.h).
#include "core/backend/cpu/gemm/einsum.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {
namespace {

int64_t aligned_scratch(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// A copy of an operand into the order of a matrix, or of the result from it.
class Packer {
 public:
  Packer(Context& context, const Packing& packing, DType dtype)
      : context_(context),
        function_(
            context.function("product", dtype_bytes(dtype) == 2 ? "pack_2_bytes" : "pack_4_bytes")),
        shape_(elementwise_shape(context, packing.elements)) {
    const IterationSpace& space = packing.space;
    CHECK(space.sizes.size() <= PackParameters::kDimensions, "{} dimensions", space.sizes.size());
    p_.elements = packing.elements;
    p_.dimensions = static_cast<int32_t>(space.sizes.size());
    std::copy(space.sizes.begin(), space.sizes.end(), p_.sizes);
    std::copy(space.operands[0].begin(), space.operands[0].end(), p_.from_strides);
    std::copy(space.operands[1].begin(), space.operands[1].end(), p_.to_strides);
  }

  void enqueue(CUstream stream, CUdeviceptr from, CUdeviceptr to) const {
    PackParameters p = p_;
    p.from = reinterpret_cast<const void*>(from);
    p.to = reinterpret_cast<void*>(to);
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  Function function_;
  LaunchShape shape_;
  PackParameters p_ = {};
};

using Offsets = std::array<int64_t, 3>;  // Of A, B and C.

// The batch dimension that is one product's batch, as it has the most elements; nullopt: no batch.
std::optional<size_t> inner_dimension(const IterationSpace& batch) {
  if (batch.sizes.empty()) return std::nullopt;
  return static_cast<size_t>(std::max_element(batch.sizes.begin(), batch.sizes.end()) -
                             batch.sizes.begin());
}

// Where the products of all other batch dimensions begin.
std::vector<Offsets> outer_offsets(const IterationSpace& batch) {
  const std::optional<size_t> inner = inner_dimension(batch);
  std::vector<Offsets> offsets = {Offsets{}};
  for (size_t d = 0; d < batch.sizes.size(); ++d) {
    if (d == inner) continue;
    std::vector<Offsets> more;
    for (const Offsets& each : offsets) {
      for (int64_t i = 0; i < batch.sizes[d]; ++i) {
        Offsets next = each;
        for (size_t o = 0; o < 3; ++o) next[o] += i * batch.operands[o][d];
        more.push_back(next);
      }
    }
    offsets = std::move(more);
  }
  return offsets;
}

ProductShape product_shape(const Contraction& contraction) {
  ProductShape shape;
  shape.matrices = contraction.shape;
  if (const auto inner = inner_dimension(contraction.batch)) {
    const auto stride = [&](size_t o) { return contraction.batch.operands[o][*inner]; };
    shape.batches = contraction.batch.sizes[*inner];
    shape.a_stride = stride(0), shape.b_stride = stride(1), shape.c_stride = stride(2);
  }
  return shape;
}

class EinsumKernel final : public CudaKernel {
 public:
  EinsumKernel(const Graph& graph, const Node& node, Context& context)
      : EinsumKernel(make_contraction(graph, node), context) {}
  EinsumKernel(const Contraction& contraction, Context& context)
      : product_(make_product(context, product_shape(contraction))),
        offsets_(outer_offsets(contraction.batch)),
        swapped_(contraction.swapped),
        input_bytes_(dtype_bytes(contraction.shape.input)),
        output_bytes_(dtype_bytes(contraction.shape.output)) {
    const auto reserve = [&](std::optional<Packer>& packer, const std::optional<Packing>& packing,
                             DType dtype) {
      const int64_t begin = scratch_;
      if (!packing) return begin;
      packer.emplace(context, *packing, dtype);
      scratch_ += aligned_scratch(packing->elements * dtype_bytes(dtype));
      return begin;
    };
    a_scratch_ = reserve(pack_a_, contraction.pack_a, contraction.shape.input);
    b_scratch_ = reserve(pack_b_, contraction.pack_b, contraction.shape.input);
    c_scratch_ = reserve(pack_c_, contraction.pack_c, contraction.shape.output);
  }

  int64_t scratch_bytes() const override { return scratch_ + product_->scratch_bytes(); }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const auto packed = [&](const std::optional<Packer>& packer, DeviceAddress from,
                            int64_t scratch) {
      if (!packer) return from;
      packer->enqueue(stream, pointer_of(from), pointer_of(args.scratch + scratch));
      return args.scratch + scratch;
    };
    const DeviceAddress a = packed(pack_a_, args.inputs[swapped_ ? 1 : 0], a_scratch_);
    const DeviceAddress b = packed(pack_b_, args.inputs[swapped_ ? 0 : 1], b_scratch_);
    const DeviceAddress c = pack_c_ ? args.scratch + c_scratch_ : args.outputs[0];
    for (const Offsets& offset : offsets_)
      product_->enqueue(stream, {.a = pointer_of(a + offset[0] * input_bytes_),
                                 .b = pointer_of(b + offset[1] * input_bytes_),
                                 .c = pointer_of(c + offset[2] * output_bytes_),
                                 .scratch = pointer_of(args.scratch + scratch_)});
    if (pack_c_) pack_c_->enqueue(stream, pointer_of(c), pointer_of(args.outputs[0]));
  }

 private:
  std::unique_ptr<Product> product_;
  std::vector<Offsets> offsets_;
  bool swapped_;
  int64_t input_bytes_, output_bytes_;
  std::optional<Packer> pack_a_, pack_b_, pack_c_;
  int64_t scratch_ = 0, a_scratch_ = 0, b_scratch_ = 0, c_scratch_ = 0;
};

const KernelRegistrar kRegisterEinsum{&kEinsumOp, make_kernel<EinsumKernel>};

}  // namespace
}  // namespace tessera::cuda
