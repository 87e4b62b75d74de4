// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include <cblas.h>

namespace tessera {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of a few products of 512x512 matrices, one on each thread at a time.
double measure(ThreadTeam& team) {
  constexpr int kSize = 512, kRuns = 6;
  constexpr size_t kElements = size_t{kSize} * kSize;
  std::vector<float> a(kElements, 0.5f), b(kElements, 0.25f);
  std::vector<std::vector<float>> c(static_cast<size_t>(team.size()));
  for (auto& part : c) part.resize(kElements);
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = seconds();
    team.run([&](int thread) {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1.0f, a.data(),
                  kSize, b.data(), kSize, 0.0f, c[static_cast<size_t>(thread)].data(), kSize);
    });
    best = std::min(best, seconds() - begin);
  }
  return 2.0 * kSize * kSize * kSize * team.size() / best;
}

}  // namespace

double cpu_peak_flops(DType dtype, ThreadTeam& team) {
  static std::mutex mutex;
  static std::map<std::pair<DType, int>, double> peaks;
  const std::lock_guard<std::mutex> lock(mutex);
  double& peak = peaks[{dtype, team.size()}];
  if (peak == 0.0) peak = measure(team);
  return peak;
}

}  // namespace tessera
