// SPDX-License-Identifier: Apache-2.0
// The text of a graph.
#include "core/graph/text.h"

#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("A graph prints one line per node below its layer path") {
  Trial trial(Mesh::standard({1, 2, 4}),
              {"f32[\"batch/data=8 embed=16\"]", "f32[\"embed=16 mlp/mdl=32\"]"});
  const PathScope model("lm");
  const PathScope layer("up");
  const SourceSite line = {"up.cc", 41};
  const Tensor hidden =
      einsum({trial.inputs()[0], line}, trial.inputs()[1], over("embed")).named("hidden");
  {
    const PhaseScope phase(Phase::kBackward);
    output("result", silu({hidden, SourceSite{"up.cc", 42}}));
  }
  verify(trial.graph(), trial.mesh());
  REQUIRE(graph_text(trial.graph()) ==
          "%0 x : batch f32[\"batch/data=8 embed=16\"]\n"
          "%1 y : batch f32[\"embed=16 mlp/mdl=32\"]\n"
          "# forward lm.up\n"
          "%2:hidden = einsum(%0, %1) {contracted=[embed] output=[batch mlp]} : "
          "f32[\"batch/data=8 mlp/mdl=32\"]  @ up.cc:41\n"
          "# backward lm.up\n"
          "%3 = silu(%2:hidden) : f32[\"batch/data=8 mlp/mdl=32\"]  @ up.cc:42\n"
          "output result = %3\n");
}

TEST_CASE("Bodies are indented below their loop") {
  Trial trial(Mesh::standard({1, 1, 1}), {"f32[\"b=8\"]"});
  const auto body = [](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
    return {{tanh(carries[0])}, {}};
  };
  repeat("layers", 3, trial.inputs(), {}, body);
  const std::string text = graph_text(trial.graph());
  REQUIRE_THAT(text, Catch::Matchers::Contains("= repeat(%0) {axis=layers count=3"));
  REQUIRE_THAT(text, Catch::Matchers::Contains("\n  {\n    %0 index : loop i32[\"\"]\n"));
  REQUIRE_THAT(text, Catch::Matchers::Contains("\n    %2 = tanh(%1) : f32[\"b=8\"]"));
  REQUIRE_THAT(text, Catch::Matchers::EndsWith("  }\n"));
}

}  // namespace
}  // namespace tessera
