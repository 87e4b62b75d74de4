// SPDX-License-Identifier: Apache-2.0
// A product by cuBLASLt with the algorithm that was fastest on this GPU. The heuristic's first is
// within a few percent of the best for large products, but not for all shapes of small models.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/memory/step_program.h"
#include "plugins/cuda/device/choices.h"
#include "plugins/cuda/device/timing.h"
#include "plugins/cuda/gemm/cublaslt.h"

namespace tessera::cuda {
namespace {

constexpr int kCandidates = 16;
constexpr float kRefused = std::numeric_limits<float>::max();
constexpr int64_t kWorkspaceAlignment = 256;

// The size that cuBLAS recommends: 32 MiB from Hopper on, else 4 MiB.
int64_t workspace_bytes(const Context& context) {
  return int64_t{context.compute_capability() >= 90 ? 32 : 4} << 20;
}

// An algorithm as text: the hexadecimal digits of its words, which only this version of the library
// understands.
using AlgorithmWords = std::array<uint64_t, 8>;
constexpr size_t kWordDigits = 16;

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format("{:016x}", fmt::join(std::bit_cast<AlgorithmWords>(algorithm), ""));
}

std::optional<cublasLtMatmulAlgo_t> algorithm_of(const std::string& text) {
  AlgorithmWords words = {};
  const bool is_hexadecimal = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (text.size() != words.size() * kWordDigits || !is_hexadecimal) return std::nullopt;
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = std::stoull(text.substr(i * kWordDigits, kWordDigits), nullptr, 16);
  return std::bit_cast<cublasLtMatmulAlgo_t>(words);
}

// The products whose kernels the library has loaded on a GPU. It loads one at its first launch,
// which may wait for all work of the GPU; beside a collective the run would hang.
class LoadedProducts {
 public:
  explicit LoadedProducts(Context&) {}

  // Whether `key` is new.
  bool add(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return keys_.insert(key).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> keys_;
};

// Memory and a stream to run a product with random operands: with zeros the GPU would draw less
// power, and clock higher.
struct ProductTrial {
  ProductTrial(Context& context, const ProductShape& shape, int64_t scratch_bytes)
      : memory(context),
        timer(context),
        operands(random_operands(context, memory, timer.stream(), shape, scratch_bytes)) {}

  bool has_memory() const { return memory.complete() && timer.has_memory(); }

  TrialMemory memory;
  WorkTimer timer;
  ProductOperands operands;
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
    const std::string where =
        fmt::format("{}, cuBLASLt {}", context_.name(), handle_.library()->version());
    if (!settings.untimed) choose_fastest(where, candidates);
    if (context_.part<LoadedProducts>().add(key_at(where))) load();
    unaligned_ = make_reference_product(context_, shape_);
    return true;
  }

  std::string_view implementation() const override { return kCublasLtName; }
  int64_t scratch_bytes() const override { return workspace_ + kWorkspaceAlignment - kAlignment; }

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

  std::string key_at(const std::string& where) const { return where + ", " + shape_.text(); }

  // The run's choice, or else that of an earlier run, or the fastest. It needs no more workspace
  // than the plan has for any.
  void choose_fastest(const std::string& where,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& candidates) {
    const auto accepts = [&](const std::string& choice) {
      const auto algorithm = algorithm_of(choice);
      return algorithm && problem_.accepts(handle_.get(), *algorithm, workspace_);
    };
    const auto choose = [&] {
      const auto known = context_.part<ChoiceCache>().find(key_at(where), accepts, [&] {
        context_.part<LoadedProducts>().add(key_at(where));  // Timing has loaded it.
        return fastest(candidates);
      });
      return known.value_or(text_of(algorithm_));
    };
    algorithm_ = *algorithm_of(
        context_.part<SharedChoices>().run->find(where, shape_.text(), accepts, choose));
  }

  // The fastest; nullopt without memory for a trial, or if the library refuses all. It is found
  // while kernels are prepared, not in the first step: a step may be captured into a graph, and its
  // sums may be added in place.
  std::optional<std::string> fastest(
      const std::vector<cublasLtMatmulHeuristicResult_t>& candidates) {
    const std::vector<float> all = times(candidates);
    const auto least = std::min_element(all.begin(), all.end());
    if (least == all.end() || *least == kRefused) return std::nullopt;
    return text_of(candidates[static_cast<size_t>(least - all.begin())].algo);
  }

  // Times in milliseconds; kRefused if the library refuses the algorithm. Empty without memory.
  std::vector<float> times(const std::vector<cublasLtMatmulHeuristicResult_t>& candidates) {
    context_.make_current();
    const ProductTrial trial(context_, shape_, scratch_bytes());
    std::vector<float> times;
    if (!trial.has_memory()) return times;
    for (const auto& candidate : candidates) {
      const auto work = [&] {
        return run(trial.timer.stream(), trial.operands, candidate.algo) == CUBLAS_STATUS_SUCCESS;
      };
      times.push_back(trial.timer.least_time(work).value_or(kRefused));
    }
    return times;
  }

  // Runs the algorithm once. Without memory for that it is loaded by the first step.
  void load() {
    const ProductTrial trial(context_, shape_, scratch_bytes());
    if (!trial.has_memory()) return;
    run(trial.timer.stream(), trial.operands, algorithm_);
    trial.timer.synchronize();
  }

  Context& context_;
  CublasLtHandle& handle_;
  ProductShape shape_;
  CublasLtProblem problem_;
  int64_t workspace_;
  cublasLtMatmulAlgo_t algorithm_ = {};
  std::unique_ptr<Product> unaligned_;
};

// Whether the library has an epilogue for the product whose demands the shape meets.
bool has_fused_epilogue(const ProductShape& shape) {
  const Epilogue& epilogue = shape.epilogue;
  if (epilogue.activation == Activation::kSilu || epilogue.activation == Activation::kSiluGradient)
    return false;
  const bool second_matrix =
      epilogue.saves_operand || epilogue.activation == Activation::kGeluGradient;
  if (second_matrix && (shape.matrices.c_leading % 8 != 0 || shape.c_stride % 8 != 0)) return false;
  // The library adds a bias in bf16 to an f32 result of 8-bit operands; ours has the result's
  // dtype.
  if (shape.fp8 && epilogue.bias && shape.matrices.output == DType::kF32) return false;
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
