// SPDX-License-Identifier: Apache-2.0
// Tests which values can get a gradient from a loss.
#include <string>
#include <vector>

#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// Returns which of the trial's inputs a loss reaches.
std::vector<bool> reached(Trial& trial, const Tensor& loss) {
  const ValueFlags flags = reached_by_gradient(trial.graph(), loss.id());
  std::vector<bool> inputs;
  for (const Tensor& input : trial.inputs()) inputs.push_back(flags[input.id()]);
  return inputs;
}

const std::string kType = "f32[\"embed=4\"]";

TEST_CASE("a loss reaches what it is computed from, but not through a stopped gradient or ids") {
  Trial trial(Mesh(), {kType, kType, kType, kType});
  const std::vector<Tensor>& in = trial.inputs();
  const Tensor stopped = stop_gradient(in[1]);
  const Tensor compared = where(less(in[2], in[3]), in[0], stopped);
  REQUIRE(reached(trial, reduce_sum(square(compared))) ==
          std::vector<bool>{true, false, false, false});
}

TEST_CASE("a loss reaches the operands of a loop that its result depends on, across iterations") {
  Trial trial(Mesh(), {kType, kType, kType});
  // In each iteration: a <- b, b <- c, and c stays.
  const RepeatResult result =
      repeat("layers", 3, trial.inputs(), {},
             [](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) {
               return RepeatBody{{carries[1] * 2.0, carries[2] * 2.0, carries[2]}, {}};
             });
  REQUIRE(reached(trial, reduce_sum(result.carries[2])) == std::vector<bool>{false, false, true});
  REQUIRE(reached(trial, reduce_sum(result.carries[1])) == std::vector<bool>{false, false, true});
  // Any number of iterations counts: after one, `a` is what `b` was.
  REQUIRE(reached(trial, reduce_sum(result.carries[0])) == std::vector<bool>{false, true, true});
}

}  // namespace
}  // namespace tessera
