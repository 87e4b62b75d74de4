// SPDX-License-Identifier: Apache-2.0
// The kernel of einsum: the products of a contraction, divided among threads by batch, rows and
// columns.
#include "core/ops/einsum.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/region.h"
#include "core/devices/contraction.h"
#include "core/devices/cpu/gemm/gemm.h"
#include "core/devices/cpu/registry.h"
#include "core/devices/cpu/strided_copy.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

// The number of parts of each dimension; their product is at most the number of threads.
struct Grid {
  int batch = 1, m = 1, n = 1;
};

// Returns the cycles to pack an element, measured on Zen 4. Each thread packs its own parts of A
// and B, so the best grid is the one that packs least.
double packing_cost(const MatrixLayout& layout, bool is_left) {
  if (is_left) return layout.transposed ? 0.25 : 0.15;
  return layout.transposed ? 0.5 : 0.35;
}

Grid choose_grid(const GemmShape& shape, int64_t batches, int threads) {
  const double operations = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                            static_cast<double>(shape.k) * static_cast<double>(batches);
  if (threads == 1 || operations < 5e5) return {};
  if (batches >= threads) return {.batch = threads};
  Grid best;
  double least = 1e300;
  for (int m = 1; m <= threads; ++m) {
    const int n = threads / m;
    if (threads % m != 0 || (m > 1 && shape.m < kRowGrain * m)) continue;
    if (n > 1 && shape.n < kColumnGrain * n) continue;
    const double cost = static_cast<double>(shape.m) / m * packing_cost(shape.a, true) +
                        static_cast<double>(shape.n) / n * packing_cost(shape.b, false);
    if (cost < least) {
      least = cost;
      best = {1, m, n};
    }
  }
  return best;
}

// The part of the product that one thread computes.
struct Part {
  Range batch, m, n;
  Gemm gemm;
  int64_t scratch = 0;  // Offset of its scratch.
};

class EinsumKernel final : public HostKernel {
 public:
  EinsumKernel(Contraction contraction, ThreadPool& pool)
      : contraction_(std::move(contraction)), pool_(pool) {
    const GemmShape& shape = contraction_.shape;
    input_bytes_ = dtype_bytes(shape.input);
    output_bytes_ = dtype_bytes(shape.output);
    reserve_packings();
    const Grid grid = choose_grid(shape, contraction_.batches(), pool.size());
    const GemmPath path = gemm_path(shape.input);
    for (int b = 0; b < grid.batch; ++b) {
      for (int i = 0; i < grid.m; ++i) {
        for (int j = 0; j < grid.n; ++j) {
          GemmShape own = shape;
          const Range rows = part_of(shape.m, i, grid.m, kRowGrain);
          const Range columns = part_of(shape.n, j, grid.n, kColumnGrain);
          own.m = rows.size();
          own.n = columns.size();
          Part part{.batch = part_of(contraction_.batches(), b, grid.batch),
                    .m = rows,
                    .n = columns,
                    .gemm = Gemm(own, path),
                    .scratch = scratch_};
          scratch_ += aligned_bytes(part.gemm.scratch_bytes());
          parts_.push_back(part);
        }
      }
    }
  }

  int64_t scratch_bytes() const override { return scratch_; }

  void run(const HostArgs& args) override {
    const bool swapped = contraction_.swapped;
    const std::byte* const a =
        packed(contraction_.pack_a, args.inputs[swapped ? 1 : 0], args.scratch + a_scratch_);
    const std::byte* const b =
        packed(contraction_.pack_b, args.inputs[swapped ? 0 : 1], args.scratch + b_scratch_);
    std::byte* const c = contraction_.pack_c ? args.scratch + c_scratch_ : args.outputs[0];
    if (parts_.size() == 1) {
      run_part(parts_[0], a, b, c, args.scratch);
    } else {
      pool_.run([&](int thread) {
        const auto index = static_cast<size_t>(thread);
        if (index < parts_.size()) run_part(parts_[index], a, b, c, args.scratch);
      });
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
  }

  const std::byte* packed(const std::optional<Packing>& packing, const std::byte* from,
                          std::byte* to) {
    if (!packing) return from;
    strided_copy(packing->space, input_bytes_, from, to, pool_);
    return to;
  }

  void run_part(const Part& part, const std::byte* a, const std::byte* b, std::byte* c,
                std::byte* scratch) const {
    const GemmShape& shape = contraction_.shape;
    a += part.m.begin * (shape.a.transposed ? 1 : shape.a.leading) * input_bytes_;
    b += part.n.begin * (shape.b.transposed ? shape.b.leading : 1) * input_bytes_;
    c += (part.m.begin * shape.c_leading + part.n.begin) * output_bytes_;
    const IterationSpace& batch = contraction_.batch;
    for (int64_t index = part.batch.begin; index < part.batch.end; ++index) {
      std::array<int64_t, 3> offset = {};
      int64_t rest = index;
      for (size_t d = batch.sizes.size(); d-- > 0;) {
        for (size_t i = 0; i < 3; ++i) offset[i] += rest % batch.sizes[d] * batch.operands[i][d];
        rest /= batch.sizes[d];
      }
      part.gemm.run(a + offset[0] * input_bytes_, b + offset[1] * input_bytes_,
                    c + offset[2] * output_bytes_, scratch + part.scratch);
    }
  }

  Contraction contraction_;
  ThreadPool& pool_;
  std::vector<Part> parts_;
  int64_t input_bytes_ = 4, output_bytes_ = 4;
  int64_t scratch_ = 0, a_scratch_ = 0, b_scratch_ = 0, c_scratch_ = 0;
};

std::unique_ptr<Kernel> make_einsum(const Graph& graph, const Node& node, ThreadPool& pool) {
  vector_dtype(graph, node, 0);  // An Error for other dtypes.
  return std::make_unique<EinsumKernel>(make_contraction(graph, node), pool);
}

const KernelRegistrar kRegisterEinsum{kEinsumOp, make_einsum};

}  // namespace
}  // namespace tessera
