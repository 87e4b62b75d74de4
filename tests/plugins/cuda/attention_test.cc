// SPDX-License-Identifier: Apache-2.0
// Tests attention kernels of the CUDA device on the virtual GPU: every op case, and shapes for
// every path: every head width, several blocks of queries and keys, masks that hide whole blocks,
// grouped queries, rows that begin at any address, and caches with one and several runs of keys.
#include "core/ops/attention.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/graph/trace.h"
#include "plugins/cuda/device/device.h"
#include "tests/support/attention_trial.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

struct Gpu {
  explicit Gpu(uint64_t seed = 1) : gpus(seed) { device = std::move(make_cuda_devices(1, 1)[0]); }
  virtual_gpu::TestGpus gpus;
  std::unique_ptr<Device> device;
};

TEST_CASE("attention cases agree with the reference on the virtual GPU") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  const Gpu gpu;
  int count = 0;
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kAttentionOp && row.op != &kAttentionGradOp && row.op != &kCachedAttentionOp)
      continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *gpu.device).mismatch == "");
    ++count;
  }
  REQUIRE(count >= 20);
}

std::string gpu_mismatch(const AttentionSizes& sizes, const std::string& dtype,
                         const AttentionOptions& options, bool segments, KernelCheck check) {
  const Gpu gpu;
  check.device = gpu.device.get();
  return attention_mismatch(sizes, dtype, options, segments, check);
}

TEST_CASE("attention of every head width agrees with its decomposition on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  // Kernels have widths of 32, 64, 128 and 256. Rows fill the width, whole vectors, or neither.
  const int head_dim = GENERATE(1, 16, 32, 33, 64, 72, 128, 129, 200, 256);
  const bool causal = GENERATE(false, true);
  CAPTURE(dtype, head_dim, causal);
  const AttentionOptions options{.mask = causal ? AttentionMask::kCausal : AttentionMask::kFull,
                                 .scale = 0.1,
                                 .logit_cap = head_dim % 16 == 0 ? 0.0 : 2.0};
  // Two blocks of queries and three of keys, or the reverse.
  const int queries = causal ? 71 : 40, keys = causal ? 69 : 130;
  // The sums of bf16 products cancel in narrow heads.
  const KernelCheck check{.tolerance_bf16 = 2e-2};
  REQUIRE(gpu_mismatch({1, queries, keys, 2, 1, head_dim}, dtype, options, false, check) == "");
}

TEST_CASE("attention agrees with its decomposition on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  const auto sizes =
      GENERATE(AttentionSizes{1, 1, 1, 1, 1, 1}, AttentionSizes{2, 17, 17, 2, 2, 8},
               AttentionSizes{2, 70, 70, 6, 2, 24}, AttentionSizes{1, 64, 200, 4, 1, 16},
               AttentionSizes{1, 130, 40, 3, 1, 40});
  const bool causal = GENERATE(false, true);
  const bool segments = GENERATE(false, true);
  CAPTURE(dtype, sizes.queries, sizes.keys, sizes.heads, sizes.head_dim, causal, segments);
  const AttentionOptions options{.mask = causal ? AttentionMask::kCausal : AttentionMask::kFull,
                                 .scale = 0.4,
                                 .logit_cap = segments ? 2.0 : 0.0};
  // With several segment ids, some queries see no key.
  const KernelCheck check{.max_integer = 4, .offset = sizes.batch == 2 ? 0 : 1};
  REQUIRE(gpu_mismatch(sizes, dtype, options, segments, check) == "");
}

TEST_CASE("attention in a window agrees with its decomposition on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  const auto sizes =
      GENERATE(AttentionSizes{2, 70, 70, 6, 2, 24}, AttentionSizes{1, 300, 300, 1, 1, 8},
               AttentionSizes{1, 130, 40, 3, 1, 40});
  const int64_t window = GENERATE(2, 7, 64, 150);
  CAPTURE(dtype, sizes.queries, sizes.keys, window);
  const KernelCheck check{.max_integer = 4};
  REQUIRE(gpu_mismatch(sizes, dtype, {.scale = 0.4, .window = window}, window == 7, check) == "");
}

TEST_CASE("attention with keys before the first query agrees on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  const auto sizes =
      GENERATE(AttentionSizes{2, 70, 135, 6, 2, 24}, AttentionSizes{1, 80, 300, 1, 1, 8},
               AttentionSizes{1, 130, 40, 3, 1, 40});
  const int64_t window = GENERATE(0, 2, 66, 150);
  const int64_t first = window == 2 ? 20 : std::max(sizes.keys - sizes.queries, 40);
  CAPTURE(dtype, sizes.queries, sizes.keys, window, first);
  const KernelCheck check{.max_integer = 4};
  const AttentionOptions options{.scale = 0.4, .window = window, .first_query = first};
  REQUIRE(gpu_mismatch(sizes, dtype, options, window == 66, check) == "");
}

TEST_CASE("attention is exact for extreme scores on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  // Probabilities near 0 and 1 cancel in the gradient. Its error is the error of the scores, which
  // are up to 600 here.
  const KernelCheck check{.tolerance_f32 = 3e-4, .tolerance_bf16 = 2e-2, .spread = 6.0};
  REQUIRE(gpu_mismatch({1, 200, 200, 2, 1, 16}, dtype, {}, false, check) == "");
}

TEST_CASE("packed documents of several blocks do not attend to each other on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  const bool causal = GENERATE(false, true);
  std::vector<double> segments;  // Ids need not increase: equal ids around blocks of 64 keys.
  for (int i = 0; i < 400; ++i)
    segments.push_back(i < 150 ? 7 : i < 160 ? -2 : i < 290 ? 3 : i < 300 ? 7 : 4);
  const KernelCheck check{.given = {{"u", segments}, {"v", segments}}};
  const AttentionOptions options{.mask = causal ? AttentionMask::kCausal : AttentionMask::kFull,
                                 .scale = 0.4};
  REQUIRE(gpu_mismatch({1, 400, 400, 1, 1, 8}, dtype, options, true, check) == "");
}

TEST_CASE("attention and its gradient have the same bits in every order of blocks and warps") {
  const std::string dtype = GENERATE("f32", "bf16");
  Trial trial({}, attention_types({1, 140, 140, 4, 2, 40}, dtype));
  const std::vector<Tensor>& in = trial.inputs();
  attention(in[0], in[1], in[2], {.scale = 0.3, .segment_ids = in[3], .key_segment_ids = in[4]});
  const std::vector<Tensor> results =
      traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  for (size_t i = 0; i < 3; ++i)
    trial.graph().add_output(fmt::format("gradient {}", i), results[i].id());
  ReferenceInputs inputs = sample_inputs(trial.graph());
  for (const char* name : {"u", "v"})
    for (size_t i = 0; i < inputs[name].size(); ++i) inputs[name][i] = i < 90 ? 1 : 2;
  const auto run = [&](uint64_t seed) {
    const Gpu gpu(seed);
    return run_graph(trial.graph(), inputs, *gpu.device);
  };
  const auto first = run(1);
  REQUIRE(run(2) == first);
  REQUIRE(run(3) == first);
}

TEST_CASE("cached attention agrees with its decomposition on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  const auto sizes =
      GENERATE(AttentionSizes{4, 1, 600, 8, 2, 64}, AttentionSizes{4, 3, 513, 4, 4, 20},
               AttentionSizes{4, 2, 300, 6, 1, 136}, AttentionSizes{4, 33, 200, 4, 2, 24},
               AttentionSizes{4, 1, 256, 4, 1, 200});
  const double cap = GENERATE(0.0, 2.0);
  const int64_t window = GENERATE(0, 20, 260);
  CAPTURE(dtype, sizes.queries, sizes.keys, sizes.heads, sizes.head_dim, cap, window);
  const Gpu gpu;
  Trial trial({}, cache_types(sizes, dtype));
  // Starts before, at the beginning of, inside, and past the end of the cache.
  const KernelCheck check{.given = {{"u", {-2, 0, 270, 700}}}, .device = gpu.device.get()};
  const std::vector<Tensor>& in = trial.inputs();
  cached_attention(in[0], in[1], in[2], in[3], {.scale = 0.3, .logit_cap = cap, .window = window});
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("the bits of a cached row do not depend on other rows on the virtual GPU") {
  const std::string dtype = GENERATE("f32", "bf16");
  const AttentionSizes sizes{2, 1, 600, 4, 2, 40};
  Trial trial({}, cache_types(sizes, dtype));
  const std::vector<Tensor>& in = trial.inputs();
  const Tensor out = cached_attention(in[0], in[1], in[2], in[3], {.scale = 0.3});
  trial.graph().add_output("out", out.id());
  const Gpu gpu;
  ReferenceInputs inputs = sample_inputs(trial.graph());
  const auto first_row = [&](double other_start) {
    inputs["u"] = {520, other_start};
    std::vector<double> values = run_graph(trial.graph(), inputs, *gpu.device).at("out");
    values.resize(values.size() / 2);
    return values;
  };
  const std::vector<double> expected = first_row(10);
  REQUIRE(first_row(599) == expected);
  REQUIRE(first_row(-1) == expected);
}

TEST_CASE("a head of more than 256 elements is refused with advice") {
  const Gpu gpu;
  Trial trial({}, attention_types({1, 4, 4, 1, 1, 264}, "bf16"));
  attention(trial.inputs()[0], trial.inputs()[1], trial.inputs()[2], {});
  const std::string error =
      error_of([&] { gpu.device->prepare(trial.graph(), Node(trial.graph().nodes().back())); });
  REQUIRE_THAT(error, Catch::Contains("attention: head_dim=264, but the CUDA device supports "
                                      "heads up to 256"));
}

}  // namespace
}  // namespace tessera::cuda
