// SPDX-License-Identifier: Apache-2.0
#include "core/compile/cost.h"

#include "core/compile/fuse/fuse.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("A contraction costs two operations per term, an elementwise op one per element") {
  Trial trial(Mesh(), {"f32[\"row=4 inner=8\"]", "f32[\"inner=8 column=16\"]"});
  output("y", exp(einsum(trial.inputs()[0], trial.inputs()[1], over("inner"))));
  REQUIRE(graph_flops(trial.graph()) == 2 * 4 * 8 * 16 + 4 * 16);
}

TEST_CASE("Loops count every iteration, and fusion does not change counts") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const RepeatResult result = repeat("layers", 5, {trial.inputs()[0]}, {},
                                     [](Tensor, std::vector<Tensor> x, std::vector<Tensor>) {
                                       return RepeatBody{{sin(x[0]) * x[0]}, {}};
                                     });
  output("y", result.carries[0]);
  REQUIRE(graph_flops(trial.graph()) == 5 * 2 * 4);
  REQUIRE(graph_flops(fuse(trial.graph())) == 5 * 2 * 4);
}

}  // namespace
}  // namespace tessera
