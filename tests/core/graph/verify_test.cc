// SPDX-License-Identifier: Apache-2.0
// What the verifier accepts and refuses.
#include "core/graph/verify.h"

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/ops/einsum.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/reshard.h"
#include "core/graph/text.h"
#include "core/graph/trace.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("A traced graph is legal and prints a line a node") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const AxisRules rules;
  Graph graph;
  {
    const TraceScope trace(graph, mesh, rules);
    const PathScope path("lm");
    const PathScope layer("up");
    const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=8 embed=16\"]"));
    const Tensor w = input("w", InputKind::kParameter, parse_type("f32[\"embed=16 mlp/mdl=32\"]"));
    output("hidden", silu(einsum(x, w, over("embed")).named("hidden")));
  }
  verify(graph, mesh);
  REQUIRE(graph_text(graph) ==
          "%0 x : batch f32[\"batch/data=8 embed=16\"]\n"
          "%1 w : parameter f32[\"embed=16 mlp/mdl=32\"]\n"
          "# forward lm.up\n"
          "%2:hidden = einsum(%0, %1) {contracted=[embed] output=[batch mlp]} : "
          "f32[\"batch/data=8 mlp/mdl=32\"]  @ tests/core/graph/verify_test.cc:27\n"
          "%3 = silu(%2:hidden) : f32[\"batch/data=8 mlp/mdl=32\"]"
          "  @ tests/core/graph/verify_test.cc:27\n"
          "output hidden = %3\n");
}

}  // namespace
}  // namespace tessera
