// SPDX-License-Identifier: Apache-2.0
// The kernel of einsum: the products of a contraction. Threads compute many small products each
// alone, and few large ones together.
#include "core/ops/einsum.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/region.h"
#include "core/devices/contraction.h"
#include "core/devices/cpu/gemm/gemm.h"
#include "core/devices/cpu/registry.h"
#include "core/devices/cpu/strided_copy.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

// With so many products for each thread, each is computed by one thread.
constexpr int64_t kBatchesOfThread = 4;

class EinsumKernel final : public HostKernel {
 public:
  EinsumKernel(Contraction contraction, ThreadPool& pool)
      : contraction_(std::move(contraction)), pool_(pool) {
    const GemmShape& shape = contraction_.shape;
    input_bytes_ = dtype_bytes(shape.input);
    output_bytes_ = dtype_bytes(shape.output);
    reserve_packings();
    const double operations = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                              static_cast<double>(shape.k);
    const auto batches = static_cast<double>(contraction_.batches());
    if (pool.size() > 1 && operations * batches >= kLeastOperations) {
      const bool one_thread_each =
          contraction_.batches() >= kBatchesOfThread * pool.size() || operations < kLeastOperations;
      (one_thread_each ? batch_pool_ : product_pool_) = &pool;
    }
    gemm_ = Gemm(shape, gemm_path(shape.input), product_pool_ != nullptr ? pool.size() : 1);
    gemm_scratch_ = aligned_bytes(gemm_->scratch_bytes());
    scratch_ += gemm_scratch_ * (batch_pool_ != nullptr ? pool.size() : 1);
  }

  int64_t scratch_bytes() const override { return scratch_; }

  void run(const HostArgs& args) override {
    const bool swapped = contraction_.swapped;
    const std::byte* const a =
        packed(contraction_.pack_a, args.inputs[swapped ? 1 : 0], args.scratch + a_scratch_);
    const std::byte* const b =
        packed(contraction_.pack_b, args.inputs[swapped ? 0 : 1], args.scratch + b_scratch_);
    std::byte* const c = contraction_.pack_c ? args.scratch + c_scratch_ : args.outputs[0];
    const auto multiply = [&](Range batch, int thread) {
      for (int64_t index = batch.begin; index < batch.end; ++index)
        run_product(index, a, b, c, args.scratch + products_scratch_ + thread * gemm_scratch_);
    };
    if (batch_pool_ != nullptr) {
      batch_pool_->parallel(contraction_.batches(), 1, multiply);
    } else {
      multiply({0, contraction_.batches()}, 0);
    }
    if (contraction_.pack_c)
      strided_copy(contraction_.pack_c->space, output_bytes_, c, args.outputs[0], pool_);
  }

 private:
  void reserve_packings() {
    const auto reserve = [&](const std::optional<Packing>& packing, int64_t bytes) {
      const int64_t begin = scratch_;
      if (packing) scratch_ += aligned_bytes(packing->elements * bytes);
      return begin;
    };
    a_scratch_ = reserve(contraction_.pack_a, input_bytes_);
    b_scratch_ = reserve(contraction_.pack_b, input_bytes_);
    c_scratch_ = reserve(contraction_.pack_c, output_bytes_);
    products_scratch_ = scratch_;
  }

  const std::byte* packed(const std::optional<Packing>& packing, const std::byte* from,
                          std::byte* to) {
    if (!packing) return from;
    strided_copy(packing->space, input_bytes_, from, to, pool_);
    return to;
  }

  void run_product(int64_t index, const std::byte* a, const std::byte* b, std::byte* c,
                   std::byte* scratch) const {
    const IterationSpace& batch = contraction_.batch;
    std::array<int64_t, 3> offset = {};
    for (size_t d = batch.sizes.size(); d-- > 0;) {
      for (size_t i = 0; i < 3; ++i) offset[i] += index % batch.sizes[d] * batch.operands[i][d];
      index /= batch.sizes[d];
    }
    gemm_->run(a + offset[0] * input_bytes_, b + offset[1] * input_bytes_,
               c + offset[2] * output_bytes_, scratch, product_pool_);
  }

  Contraction contraction_;
  ThreadPool& pool_;
  ThreadPool* batch_pool_ = nullptr;    // Set if its threads compute whole products.
  ThreadPool* product_pool_ = nullptr;  // Set if its threads share each product.
  std::optional<Gemm> gemm_;
  int64_t gemm_scratch_ = 0;
  int64_t input_bytes_ = 4, output_bytes_ = 4;
  int64_t scratch_ = 0, a_scratch_ = 0, b_scratch_ = 0, c_scratch_ = 0, products_scratch_ = 0;
};

std::unique_ptr<Kernel> make_einsum(const Graph& graph, const Node& node, ThreadPool& pool) {
  vector_dtype(graph, node, 0);  // An Error for other dtypes.
  return std::make_unique<EinsumKernel>(make_contraction(graph, node), pool);
}

const KernelRegistrar kRegisterEinsum{kEinsumOp, make_einsum};

}  // namespace
}  // namespace tessera
