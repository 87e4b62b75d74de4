// SPDX-License-Identifier: Apache-2.0
// The kernels of argsort, top_k and cumulative_sum: rows are divided among threads.
#include "core/ops/order.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/devices/cpu/registry.h"
#include "core/devices/iteration_space.h"

namespace tessera {
namespace {

// Returns a number whose order is that of the value; NaN is the largest.
uint32_t key_of(float value) {
  if (std::isnan(value)) return 0xffffffffu;
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 + 0 is 0.
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
uint32_t key_of(BFloat16 value) { return key_of(static_cast<float>(value)); }
uint32_t key_of(int32_t value) { return static_cast<uint32_t>(value) ^ 0x80000000u; }

// Sorts keys with their positions, so that no two are equal. argsort keeps all of a row, top_k only
// the first ones.
class OrderKernel final : public HostKernel {
 public:
  OrderKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : shape_(graph.type(node.inputs[0]), node.attributes.get(key::kAxis)),
        kept_(graph.type(node.outputs[0]).elements() / (shape_.outer * shape_.inner)),
        flip_(node.attributes.get(key::kDescending) ? 0xffffffffu : 0),
        dtype_(graph.type(node.inputs[0]).dtype),
        pool_(pool) {
    if (dtype_ != DType::kI32) vector_dtype(graph, node, 0);
  }

  // The keys of one row for each thread.
  int64_t scratch_bytes() const override { return 8 * pool_.size() * shape_.size; }

  void run(const HostArgs& args) override {
    if (dtype_ == DType::kF32) return run_rows<float>(args);
    if (dtype_ == DType::kBF16) return run_rows<BFloat16>(args);
    run_rows<int32_t>(args);
  }

 private:
  template <typename T>
  void run_rows(const HostArgs& args) {
    const T* const x = input_as<T>(args, 0);
    int32_t* const result = output_as<int32_t>(args, 0);
    const int64_t rows = shape_.outer * shape_.inner;
    const int64_t grain = std::max<int64_t>(1, 1024 / shape_.size);
    pool_.parallel(rows, grain, [&](Range part, int thread) {
      uint64_t* const keys = reinterpret_cast<uint64_t*>(args.scratch) + thread * shape_.size;
      for (int64_t row = part.begin; row < part.end; ++row) {
        const int64_t outer = row / shape_.inner, inner = row % shape_.inner;
        const T* const from = x + outer * shape_.size * shape_.inner + inner;
        for (int64_t i = 0; i < shape_.size; ++i)
          keys[i] =
              uint64_t{key_of(from[i * shape_.inner]) ^ flip_} << 32 | static_cast<uint64_t>(i);
        kept_ == shape_.size ? std::sort(keys, keys + kept_)
                             : std::partial_sort(keys, keys + kept_, keys + shape_.size);
        int32_t* const to = result + outer * kept_ * shape_.inner + inner;
        for (int64_t i = 0; i < kept_; ++i) to[i * shape_.inner] = static_cast<int32_t>(keys[i]);
      }
    });
  }

  AxisShape shape_;
  int64_t kept_;
  uint32_t flip_;  // Descending order is ascending order of the complements.
  DType dtype_;
  ThreadPool& pool_;
};

// Runs along the axis with the sums of some adjacent rows.
class CumulativeSumKernel final : public HostKernel {
 public:
  CumulativeSumKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : shape_(graph.type(node.inputs[0]), node.attributes.get(key::kAxis)),
        exclusive_(node.attributes.get(key::kExclusive)),
        reverse_(node.attributes.get(key::kReverse)),
        dtype_(graph.type(node.inputs[0]).dtype),
        pool_(pool) {
    if (dtype_ != DType::kI32) vector_dtype(graph, node, 0);
  }

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void run(const HostArgs& args) override {
    if (dtype_ == DType::kF32) return run_rows<float, float>(args);
    if (dtype_ == DType::kBF16) return run_rows<BFloat16, float>(args);
    run_rows<uint32_t, uint32_t>(args);  // i32; wraps around.
  }

 private:
  static constexpr int64_t kColumns = 64;

  template <typename T, typename Sum>
  void run_rows(const HostArgs& args) {
    const int64_t blocks = (shape_.inner + kColumns - 1) / kColumns;
    const int64_t work = shape_.size * std::min(shape_.inner, kColumns);
    pool_.parallel(shape_.outer * blocks, std::max<int64_t>(1, 8192 / work), [&](Range part, int) {
      for (int64_t block = part.begin; block < part.end; ++block) {
        const int64_t first = block % blocks * kColumns;
        const int64_t at = block / blocks * shape_.size * shape_.inner + first;
        sum_columns<T, Sum>(input_as<T>(args, 0) + at, output_as<T>(args, 0) + at,
                            std::min(kColumns, shape_.inner - first));
      }
    });
  }

  // x and y may be the same.
  template <typename T, typename Sum>
  void sum_columns(const T* x, T* y, int64_t columns) const {
    Sum sums[kColumns] = {};
    for (int64_t step = 0; step < shape_.size; ++step) {
      const int64_t at = (reverse_ ? shape_.size - 1 - step : step) * shape_.inner;
      for (int64_t c = 0; c < columns; ++c) {
        const Sum before = sums[c];
        sums[c] = before + static_cast<Sum>(x[at + c]);
        y[at + c] = static_cast<T>(exclusive_ ? before : sums[c]);
      }
    }
  }

  AxisShape shape_;
  bool exclusive_, reverse_;
  DType dtype_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterOrder{{&kArgsortOp, &kTopKOp}, make_kernel<OrderKernel>};
const KernelRegistrar kRegisterCumulativeSum{kCumulativeSumOp, make_kernel<CumulativeSumKernel>};

}  // namespace
}  // namespace tessera
