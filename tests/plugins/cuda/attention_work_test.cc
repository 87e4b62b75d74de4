// SPDX-License-Identifier: Apache-2.0
// Compares the work that prices of our attention kernels assume
// (tasks/planner/prices/attention_work.h) with the counts of the virtual GPU while it runs them:
// equal, at sizes for every path of the kernels.
#include "tasks/planner/prices/attention_work.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/check/run_graph.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "plugins/cuda/device/device.h"
#include "tests/support/attention_trial.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kSharedMemory = 228 << 10;  // Bytes per multiprocessor of an H100.

using Counts = std::map<std::string, virtual_gpu::KernelCounts>;

// Runs the graph on a virtual GPU. Returns the counts by kernel.
Counts counted(const Graph& graph) {
  constexpr std::string_view kBefore = "kernel ";  // "kernel NAME on stream …".
  const virtual_gpu::TestGpus gpus;
  const std::unique_ptr<Device> device = std::move(make_cuda_devices(1, 1)[0]);
  Counts counts;
  virtual_gpu::state().kernel_observer = [&](const virtual_gpu::Task& task,
                                             const virtual_gpu::AccessLog& log) {
    const std::string name = task.name.substr(kBefore.size());
    counts[name.substr(0, name.find(' '))] = log.counts;
  };
  run_graph(graph, sample_inputs(graph), *device);
  virtual_gpu::state().kernel_observer = nullptr;
  return counts;
}

void check_work(const AttentionWork& work, const virtual_gpu::KernelCounts& counts) {
  constexpr int64_t kMatrixProduct = 16 * 8 * 16;
  CAPTURE(work.kernel);
  REQUIRE(static_cast<int64_t>(counts.global_bytes) == work.global_bytes);
  REQUIRE(static_cast<int64_t>(counts.shared_bytes) == work.shared_bytes);
  REQUIRE(static_cast<int64_t>(counts.barriers) == work.barriers);
  if (work.kernel.find("bf16") != std::string::npos)
    REQUIRE(static_cast<int64_t>(counts.matrix_products) * kMatrixProduct == work.multiply_adds);
}

// Compares the work of all launches of attention with these options, and of its gradient.
void check_attention(const AttentionSizes& sizes, const std::string& dtype,
                     const AttentionOptions& options) {
  Trial trial({}, attention_types(sizes, dtype));
  const std::vector<Tensor>& in = trial.inputs();
  attention(in[0], in[1], in[2], options);
  const Node forward = trial.graph().nodes().back();
  const std::vector<Tensor> results = traced_gradient(trial.graph(), forward);
  for (size_t i = 0; i < results.size(); ++i)
    trial.graph().add_output(fmt::format("gradient {}", i), results[i].id());

  const Counts counts = counted(trial.graph());
  const AttentionShape shape = attention_shape(trial.graph(), forward);
  int launches = 0;
  for (const bool gradient : {false, true}) {
    for (const AttentionWork& work : attention_work(shape, gradient, kSharedMemory)) {
      REQUIRE(counts.contains(work.kernel));
      check_work(work, counts.at(work.kernel));
      ++launches;
    }
  }
  REQUIRE(launches == 4);
}

TEST_CASE("attention kernels have the work that their prices assume") {
  const std::string dtype = GENERATE("bf16", "f32");
  const bool causal = GENERATE(true, false);
  // One and several blocks, whole and broken tiles, grouped heads, and every width.
  const AttentionSizes sizes =
      GENERATE(AttentionSizes{2, 128, 128, 2, 1, 64}, AttentionSizes{1, 200, 200, 4, 2, 32},
               AttentionSizes{1, 72, 150, 1, 1, 48}, AttentionSizes{1, 130, 70, 2, 2, 128},
               AttentionSizes{1, 64, 64, 1, 1, 8}, AttentionSizes{1, 80, 80, 2, 1, 256});
  CAPTURE(dtype, causal, sizes.queries, sizes.keys, sizes.head_dim);
  check_attention(sizes, dtype,
                  {.mask = causal ? AttentionMask::kCausal : AttentionMask::kFull, .scale = 0.1});
}

TEST_CASE("attention kernels have the work that their prices assume in a window") {
  const std::string dtype = GENERATE("bf16", "f32");
  const AttentionSizes sizes =
      GENERATE(AttentionSizes{1, 300, 300, 2, 1, 32}, AttentionSizes{1, 100, 260, 1, 1, 64},
               AttentionSizes{1, 130, 70, 2, 2, 128}, AttentionSizes{1, 80, 300, 2, 1, 256});
  const int64_t window = GENERATE(1, 40, 100, 1000);
  const int64_t first = std::max(sizes.keys - sizes.queries, 0);
  CAPTURE(dtype, sizes.queries, sizes.keys, sizes.head_dim, window);
  check_attention(sizes, dtype, {.scale = 0.1, .window = window, .first_query = first});
}

}  // namespace
}  // namespace tessera::cuda
