// SPDX-License-Identifier: Apache-2.0
// Times matrix products of one thread: bench_matrix_product [part of a name] [cold]. Reports
// GFLOP/s in processor time of the thread, the best of several calls. `cold` uses different
// operands in each call, so that they are read from memory.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/devices/cpu/gemm/gemm.h"

namespace tessera {
namespace {

struct BenchProduct {
  const char* name;
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
};

// The share of one of two threads in the products of tests/bench/compare.py's models.
constexpr BenchProduct kProducts[] = {
    {"tiny forward", 4096, 128, 128},
    {"tiny up", 4096, 512, 128},
    {"tiny down", 4096, 128, 512},
    {"tiny dW", 128, 512, 4096, true},
    {"tiny logits", 4096, 264, 128, false, true},
    {"small qkv", 2048, 384, 384},
    {"small up", 2048, 1536, 384},
    {"small dX", 2048, 384, 1536, false, true},
    {"small qkv dW", 384, 192, 4096, true},
    {"small up dW", 384, 768, 4096, true},
    {"small logits", 2048, 8192, 384, false, true},
    {"small logits dX", 2048, 384, 8192},
    {"small logits dW", 4096, 384, 4096, true},
    {"base up", 512, 3072, 768},
    {"base dX", 512, 768, 3072, false, true},
    {"base dW", 768, 1536, 1024, true},
    {"base logits", 1024, 25152, 768, false, true},
    {"base logits dX", 512, 768, 50304},
    {"base logits dW", 25152, 768, 1024, true},
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Zeroed memory in huge pages.
class Pages {
 public:
  explicit Pages(int64_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded(bytes)))) {
    madvise(memory_.get(), rounded(bytes), MADV_HUGEPAGE);
    std::memset(memory_.get(), 0, rounded(bytes));
  }
  std::byte* data() { return memory_.get(); }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  static size_t rounded(int64_t bytes) {
    return (static_cast<size_t>(bytes) + kPage) / kPage * kPage;
  }
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

double gigaflops(const BenchProduct& p, GemmPath path, DType input, DType output, bool cold) {
  const GemmShape shape{.m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .a = {p.a_transposed ? p.m : p.k, p.a_transposed},
                        .b = {p.b_transposed ? p.k : p.n, p.b_transposed},
                        .c_leading = p.n,
                        .input = input,
                        .output = output};
  const Gemm product(shape, path);
  const int64_t a_bytes = p.m * p.k * dtype_bytes(input), b_bytes = p.k * p.n * dtype_bytes(input);
  const int64_t c_bytes = p.m * p.n * dtype_bytes(output);
  constexpr int64_t kMoreThanCaches = int64_t{128} << 20;
  const int64_t sets =
      cold ? std::max<int64_t>(1, kMoreThanCaches / (a_bytes + b_bytes + c_bytes)) : 1;
  Pages a(a_bytes * sets), b(b_bytes * sets), c(c_bytes * sets), scratch(product.scratch_bytes());
  double best = 1e30, spent = 0.0;
  for (int64_t run = 0; run < 3 || spent < 0.3; ++run) {
    const int64_t set = run % sets;
    const double begin = processor_seconds();
    product.run(a.data() + set * a_bytes, b.data() + set * b_bytes, c.data() + set * c_bytes,
                scratch.data());
    const double seconds = processor_seconds() - begin;
    spent += seconds;
    best = std::min(best, seconds);
  }
  return 2e-9 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k) / best;
}

void bench(const std::string& part, bool cold) {
  fmt::print("| product | m×n×k |");
  for (const DType input : {DType::kF32, DType::kBF16})
    for (size_t path = 0; path < gemm_paths(input).size(); ++path)
      fmt::print(" {} {} |", dtype_name(input), path);
  fmt::print("\n");
  for (const BenchProduct& p : kProducts) {
    if (std::string(p.name).find(part) == std::string::npos) continue;
    fmt::print("| {} | {}×{}×{} |", p.name, p.m, p.n, p.k);
    for (const DType input : {DType::kF32, DType::kBF16}) {
      for (const GemmPath path : gemm_paths(input)) {
        fmt::print(" {:.0f} |", gigaflops(p, path, input, input, cold));
        std::fflush(stdout);
      }
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  std::string part;
  bool cold = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "cold") {
      cold = true;
    } else {
      part = argv[i];
    }
  }
  tessera::bench(part, cold);
}
