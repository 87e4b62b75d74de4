// SPDX-License-Identifier: Apache-2.0
// A product by cuBLASLt with the algorithm that was fastest on this GPU. The heuristic's first is
// within a few percent of the best for large products, but not for all shapes of small models.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/gemm/algorithm_cache.h"
#include "plugins/cuda/gemm/cublaslt.h"

namespace tessera::cuda {
namespace {

constexpr int kCandidates = 16;
constexpr int kRepetitions = 3;
constexpr int64_t kWorkspaceAlignment = 256;
constexpr int64_t kScratchAlignment = 64;  // Of what the memory plan gives.
constexpr int64_t kColdBytes = 128 << 20;  // More than any L2 cache.

// As cuBLAS recommends: 32 MiB from Hopper on, else 4 MiB.
int64_t workspace_bytes(const Context& context) {
  return int64_t{context.compute_capability() >= 90 ? 32 : 4} << 20;
}

// Memory for a timing, outside the arena.
class Trial {
 public:
  explicit Trial(Context& context) : context_(context) {}
  ~Trial() {
    for (const CUdeviceptr each : memory_) context_.driver().cuMemFree(each);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Null, and complete() is false, if the GPU has no room for it.
  CUdeviceptr allocate(int64_t bytes) {
    CUdeviceptr address = 0;
    const CUresult result =
        context_.driver().cuMemAlloc(&address, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    complete_ &= result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return 0;
    memory_.push_back(address);
    return address;
  }
  bool complete() const { return complete_; }

 private:
  Context& context_;
  std::vector<CUdeviceptr> memory_;
  bool complete_ = true;
};

class TimingEvent {
 public:
  explicit TimingEvent(Context& context) : context_(context) {
    context.check(context.driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "making an event");
  }
  ~TimingEvent() { context_.driver().cuEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;

  void record(CUstream stream) const {
    context_.check(context_.driver().cuEventRecord(event_, stream), "timing");
  }
  float milliseconds_since(const TimingEvent& begin) const {
    context_.check(context_.driver().cuEventSynchronize(event_), "timing");
    float milliseconds = 0;
    context_.check(context_.driver().cuEventElapsedTime(&milliseconds, begin.event_, event_),
                   "timing");
    return milliseconds;
  }

 private:
  Context& context_;
  CUevent event_ = nullptr;
};

class CublasLtProduct final : public Product {
 public:
  CublasLtProduct(Context& context, CublasLtHandle& handle, const ProductShape& shape)
      : context_(context),
        handle_(handle),
        shape_(shape),
        problem_(*handle.library(), shape),
        workspace_(workspace_bytes(context)) {}

  // False if the library has no algorithm.
  bool choose(const ProductSettings& settings) {
    const auto candidates = problem_.candidates(handle_.get(), kCandidates, workspace_);
    if (candidates.empty()) return false;
    algorithm_ = candidates.front().algo;
    if (!settings.untimed) choose_fastest(candidates);
    unaligned_ = make_reference_product(context_, shape_);
    return true;
  }

  int64_t scratch_bytes() const override {
    return workspace_ + kWorkspaceAlignment - kScratchAlignment;
  }

  void enqueue(CUstream stream, const ProductOperands& operands) override {
    const CUdeviceptr all = operands.a | operands.b | operands.c | operands.bias | operands.slopes |
                            operands.addend | operands.saved;
    // The algorithm was chosen for 16 bytes; a view may begin anywhere.
    if (all % 16 != 0) return unaligned_->enqueue(stream, operands);
    const cublasStatus_t status = run(stream, operands, algorithm_);
    if (status != CUBLAS_STATUS_SUCCESS)  // The text is not made for each launch.
      handle_.library()->check(status, fmt::format("cuBLASLt: {}", shape_.text()));
  }

 private:
  cublasStatus_t run(CUstream stream, const ProductOperands& operands,
                     const cublasLtMatmulAlgo_t& algorithm) {
    const CUdeviceptr workspace =
        (operands.scratch + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return problem_.run(handle_.get(), stream, operands, algorithm, workspace, workspace_);
  }

  void choose_fastest(const std::vector<cublasLtMatmulHeuristicResult_t>& candidates) {
    const std::string key = fmt::format("{}, cuBLASLt {}, {}", context_.name(),
                                        handle_.library()->version(), shape_.text());
    const auto words = algorithm_cache().find(
        key,
        [&](const AlgorithmWords& each) {
          return problem_.accepts(handle_.get(), std::bit_cast<cublasLtMatmulAlgo_t>(each),
                                  workspace_);
        },
        [&] { return time(candidates); });
    if (words) algorithm_ = std::bit_cast<cublasLtMatmulAlgo_t>(*words);
  }

  // The fastest; nullopt without memory for a trial, or if the library refuses all. It runs while
  // kernels are prepared, not in the first step: a step may be captured into a graph, and its sums
  // may be added in place. Operands are random numbers (with zeros the GPU would draw less power,
  // and clock higher) and not in the L2 cache.
  std::optional<AlgorithmWords> time(
      const std::vector<cublasLtMatmulHeuristicResult_t>& candidates) {
    context_.make_current();
    Trial trial(context_);
    const std::unique_ptr<Stream> stream = make_cuda_stream(context_, StreamUse::kCompute);
    const ProductOperands operands = random_operands(trial, native(*stream));
    const CUdeviceptr cold = trial.allocate(kColdBytes);
    if (!trial.complete()) return std::nullopt;
    float least = std::numeric_limits<float>::max();
    std::optional<AlgorithmWords> fastest;
    for (const auto& candidate : candidates) {
      const std::optional<float> time = measure(*stream, operands, candidate.algo, cold);
      if (!time || *time >= least) continue;
      least = *time;
      fastest = std::bit_cast<AlgorithmWords>(candidate.algo);
    }
    stream->synchronize();
    return fastest;
  }

  ProductOperands random_operands(Trial& trial, CUstream stream) {
    const Epilogue& epilogue = shape_.epilogue;
    const auto made = [&](bool needed, int64_t elements, DType dtype) -> CUdeviceptr {
      if (!needed) return 0;
      const CUdeviceptr address = trial.allocate(elements * dtype_bytes(dtype));
      if (address != 0) fill_with_random(context_, stream, address, elements, dtype);
      return address;
    };
    const DType input = shape_.matrices.input, output = shape_.matrices.output;
    return {
        .a = made(true, shape_.a_extent(), input),
        .b = made(true, shape_.b_extent(), input),
        .c = made(true, shape_.c_extent(), output),
        .bias = made(epilogue.bias, shape_.matrices.n, output),
        .slopes = made(epilogue.activation == Activation::kGeluGradient, shape_.c_extent(), output),
        .addend = made(epilogue.adds, shape_.c_extent(), output),
        .saved = made(epilogue.saves_operand, shape_.c_extent(), output),
        .scratch = trial.allocate(scratch_bytes())};
  }

  // The least of several times in milliseconds; nullopt if the library refuses the algorithm.
  std::optional<float> measure(Stream& stream, const ProductOperands& operands,
                               const cublasLtMatmulAlgo_t& algorithm, CUdeviceptr cold) {
    const Driver& driver = context_.driver();
    if (run(native(stream), operands, algorithm) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    const TimingEvent begin(context_), end(context_);
    float least = std::numeric_limits<float>::max();
    for (int i = 0; i < kRepetitions; ++i) {
      context_.check(driver.cuMemsetD8Async(cold, 0, kColdBytes, native(stream)), "timing");
      begin.record(native(stream));
      if (run(native(stream), operands, algorithm) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
      end.record(native(stream));
      least = std::min(least, end.milliseconds_since(begin));
    }
    return least;
  }

  Context& context_;
  CublasLtHandle& handle_;
  ProductShape shape_;
  CublasLtProblem problem_;
  int64_t workspace_;
  cublasLtMatmulAlgo_t algorithm_ = {};
  std::unique_ptr<Product> unaligned_;
};

// What the library has no epilogue for, or one with demands that the shape does not meet.
bool has_fused_epilogue(const ProductShape& shape) {
  const Epilogue& epilogue = shape.epilogue;
  if (epilogue.activation == Activation::kSilu || epilogue.activation == Activation::kSiluGradient)
    return false;
  const bool second_matrix =
      epilogue.saves_operand || epilogue.activation == Activation::kGeluGradient;
  if (second_matrix && (shape.matrices.c_leading % 8 != 0 || shape.c_stride % 8 != 0)) return false;
  const bool gradient_and_bias = epilogue.bias && epilogue.activation == Activation::kGeluGradient;
  return !gradient_and_bias;
}

}  // namespace

std::unique_ptr<Product> make_cublaslt_product(Context& context, const ProductShape& shape,
                                               const ProductSettings& settings) {
  auto& handle = context.part<CublasLtHandle>();
  CHECK(handle.library() != nullptr, "{}", handle.why_not());
  const GemmShape& s = shape.matrices;
  const bool empty = std::min({s.m, s.n, s.k, shape.batches}) == 0;
  if (empty || shape.batches > std::numeric_limits<int32_t>::max() || !has_fused_epilogue(shape))
    return nullptr;
  context.make_current();
  auto product = std::make_unique<CublasLtProduct>(context, handle, shape);
  if (!product->choose(settings)) return nullptr;
  return product;
}

}  // namespace tessera::cuda
