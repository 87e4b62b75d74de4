// SPDX-License-Identifier: Apache-2.0
// Runs with dtypes.matmul=fp8: their losses stay near those of bf16, on one device and on two, and
// their checkpoints hold only what those of bf16 hold.
#include <cmath>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

ExperimentConfig config_with(MatmulPrecision matmul, int64_t steps = 20) {
  ExperimentConfig config = tiny_config(steps);
  task_of(config).dtypes = DTypePolicy{.compute = DType::kBF16, .matmul = matmul};
  task_of(config).train.save_interval_steps = 10;
  return config;
}

constexpr auto kCompute = MatmulPrecision::kCompute, kFp8 = MatmulPrecision::kFp8;

void require_near(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    // E4M3 has four digits: a product's operands have errors of at most 1/16, in both directions.
    REQUIRE(got[i] == Approx(expected[i]).epsilon(0.02));
  }
}

TEST_CASE("twenty steps with 8-bit products have the losses of bf16 within their rounding") {
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(config_with(kCompute), directory / "bf16") == 0);
  REQUIRE(run_tiny(config_with(kFp8), directory / "fp8") == 0);
  REQUIRE(run_tiny(config_with(kFp8), directory / "again") == 0);
  REQUIRE(run_tiny(config_with(kFp8), directory / "two", {{.devices = 2}}) == 0);
  const std::vector<double> losses = numbers_of(directory / "fp8", "loss");
  REQUIRE(losses.size() == 20);
  REQUIRE(losses.back() < losses.front() - 0.2);
  REQUIRE(losses != numbers_of(directory / "bf16", "loss"));
  require_near(losses, numbers_of(directory / "bf16", "loss"));
  require_near(losses, numbers_of(directory / "two", "loss"));
  REQUIRE(losses_of(directory / "again") == losses_of(directory / "fp8"));
}

TEST_CASE(
    "a run changes between bf16 and 8-bit products at a checkpoint, which holds the same arrays") {
  const TemporaryDirectory run;
  REQUIRE(run_tiny(config_with(kFp8, 10), run.path()) == 0);
  RunWith changed;
  changed.allow_config_change = true;
  REQUIRE(run_tiny(config_with(kCompute, 20), run.path(), changed) == 0);
  const CheckpointStore store(run / "checkpoints");
  const auto before = store.open(10), after = store.open(20);
  REQUIRE(before.entries().size() == after.entries().size());
  for (const auto& [path, entry] : before.entries())
    REQUIRE_NOTHROW(after.expect(path, entry.dtype, entry.shape));
  REQUIRE(numbers_of(run.path(), "loss").size() == 20);
}

}  // namespace
}  // namespace tessera
