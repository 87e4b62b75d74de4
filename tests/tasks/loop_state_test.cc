// SPDX-License-Identifier: Apache-2.0
#include "tasks/train/loop_state.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE(
    "the loop state in a checkpoint reads back, and keys of different inputs do not collide") {
  LoopState state;
  state.input = {7, {{"data", "corpus"}, {"eval", "a key of the input's own"}}};
  state.evals["books"] = {3, {{"data", "books"}, {"position", "of the input's own"}}};
  state.evals["web"] = {0, {{"lanes/0", "3 17"}}};
  state.stop_reason = "good enough";
  state.early_stopper = {1.25, 4};
  state.mesh = "data=2";
  CheckpointInfo info;
  put_loop_state(state, &info);
  const LoopState read = loop_state_of(info);
  REQUIRE(read.input.position == 7);
  REQUIRE(read.input.cursors == state.input.cursors);
  REQUIRE(read.evals.size() == 2);
  for (const auto& [dataset, input] : state.evals) {
    REQUIRE(read.evals.at(dataset).position == input.position);
    REQUIRE(read.evals.at(dataset).cursors == input.cursors);
  }
  REQUIRE(read.stop_reason == "good enough");
  REQUIRE(read.early_stopper.evals_since_best == 4);
  REQUIRE(read.mesh == "data=2");
}

TEST_CASE("a position that is not a number is rejected") {
  CheckpointInfo info;
  info.input_extra = {{"eval/books/position", "3x"}};
  REQUIRE_THROWS_WITH(loop_state_of(info), Catch::Contains("'eval/books/position' is '3x'"));
}

}  // namespace
}  // namespace tessera
