// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/backend/cpu/matrix_product.h"

namespace tessera {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of a few products of 512x512 matrices, one on each thread at a time.
double measure(DType dtype, ThreadTeam& team) {
  constexpr int64_t kSize = 512;
  constexpr int kRuns = 8;
  const ProductShape shape{.m = kSize,
                           .n = kSize,
                           .k = kSize,
                           .a = {kSize, false},
                           .b = {kSize, false},
                           .c_leading = kSize,
                           .input = dtype};
  struct Own {
    std::unique_ptr<MatrixProduct> product;
    std::vector<std::byte> a, b, c, scratch;
  };
  std::vector<Own> own(static_cast<size_t>(team.size()));
  for (Own& one : own) {
    one.product = make_matrix_product(shape, best_library(dtype));
    for (auto* matrix : {&one.a, &one.b, &one.c}) matrix->resize(kSize * kSize * 4);
    one.scratch.resize(static_cast<size_t>(one.product->scratch_bytes()));
  }
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = seconds();
    team.run([&](int thread) {
      Own& one = own[static_cast<size_t>(thread)];
      one.product->run(one.a.data(), one.b.data(), one.c.data(), one.scratch.data());
    });
    best = std::min(best, seconds() - begin);
  }
  return 2.0 * kSize * kSize * kSize * team.size() / best;
}

}  // namespace

double cpu_peak_flops(DType dtype, ThreadTeam& team) {
  const DType measured = dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  static std::mutex mutex;
  static std::map<std::pair<DType, int>, double> peaks;
  const std::lock_guard<std::mutex> lock(mutex);
  double& peak = peaks[{measured, team.size()}];
  if (peak == 0.0) peak = measure(measured, team);
  return peak;
}

}  // namespace tessera
