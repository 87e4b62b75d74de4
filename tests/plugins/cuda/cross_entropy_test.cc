// SPDX-License-Identifier: Apache-2.0
// Tests cross-entropy kernels of the CUDA device on the virtual GPU: every op case, and
// vocabularies for every path: part of a warp, a block, several passes of a block, rows that begin
// at any address.
#include "core/ops/cross_entropy.h"

#include <limits>

#include <fmt/core.h>

#include "core/check/op_cases.h"
#include "core/graph/trace.h"
#include "core/ops/reshard.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

Node first_node(Trial& trial) { return trial.graph().nodes().front(); }

TEST_CASE("cross-entropy cases agree with the reference on the virtual GPU") {
  const TestDevices devices;
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const OpCase& row : all_op_cases()) {
    if (family_of(row) != "cross_entropy") continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
  }
}

void check_loss(Device& gpu, const std::string& dtype, int rows, int vocab,
                const CrossEntropyOptions& options, KernelCheck check) {
  CAPTURE(dtype, rows, vocab, check.offset, check.spread);
  CAPTURE(options.label_smoothing, options.z_loss, options.soft_cap);
  Trial trial({}, {fmt::format("{}[\"batch={} vocab={}\"]", dtype, rows, vocab),
                   fmt::format("i32[\"batch={}\"]", rows)});
  cross_entropy(trial.inputs()[0], trial.inputs()[1], "vocab", options);
  traced_gradient(trial.graph(), first_node(trial));
  check.device = &gpu;
  check.max_integer = vocab;
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("cross-entropy of every vocabulary agrees with its decomposition on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const int vocab = GENERATE(1, 3, 8, 129, 1023, 8704, 9001);
  const int64_t offset = GENERATE(0, 3);
  const double spread = GENERATE(1.0, 40.0);
  const int rows = vocab < 200 ? 37 : 3;
  check_loss(*devices.gpu, dtype, rows, vocab, {}, {.spread = spread, .offset = offset});
  check_loss(*devices.gpu, dtype, rows, vocab,
             {.label_smoothing = 0.1, .z_loss = 0.01, .soft_cap = 30.0},
             {.spread = spread, .offset = offset});
}

TEST_CASE("cross-entropy propagates NaN, and accepts -inf, on the virtual GPU") {
  const TestDevices devices;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> logits(4000, 1.0);
  std::fill(logits.begin(), logits.begin() + 1500, -infinity);
  logits[2700] = std::numeric_limits<double>::quiet_NaN();
  Trial trial({}, {"f32[\"batch=2 vocab=2000\"]", "i32[\"batch=2\"]"});
  cross_entropy(trial.inputs()[0], trial.inputs()[1], "vocab");
  traced_gradient(trial.graph(), first_node(trial));
  REQUIRE(kernel_mismatch(trial.graph(), {.given = {{"x", logits}, {"y", {1600, 5}}},
                                          .device = devices.gpu.get()}) == "");
}

// The op of one shard, at `origin` of a vocabulary of 3000: some labels are in other shards.
void check_shard(Device& gpu, const std::string& dtype, int vocab, int64_t origin, bool total,
                 double soft_cap, int64_t offset) {
  CAPTURE(dtype, vocab, origin, total, soft_cap, offset);
  Trial trial({}, {fmt::format("{}[\"batch=9 vocab={}\"]", dtype, vocab), "i32[\"batch=9\"]",
                   "f32[\"batch=9\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  const Attributes attributes = {{key::kAxis, "vocab"},
                                 {key::kSoftCap, soft_cap},
                                 {key::kTotal, total},
                                 {key::kOrigin, std::vector<int64_t>{0, origin}},
                                 {key::kExtent, std::vector<int64_t>{9, 3000}}};
  trace_op(kCrossEntropyShardOp, {in[0], in[1], in[2]}, attributes, SourceSite{});
  traced_gradient(trial.graph(), first_node(trial));
  KernelCheck check{.device = &gpu, .offset = offset};
  for (int i = 0; i < 9; ++i) check.given["y"].push_back(i * 300 + 7 * i);
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("a shard of a vocabulary agrees with its decomposition on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const int64_t offset = GENERATE(0, 1);
  for (const bool total : {false, true}) {
    check_shard(*devices.gpu, dtype, 1000, 0, total, 0.0, offset);
    check_shard(*devices.gpu, dtype, 1000, 2000, total, 2.0, offset);
    check_shard(*devices.gpu, dtype, 333, 601, total, 0.0, offset);
  }
}

}  // namespace
}  // namespace tessera::cuda
