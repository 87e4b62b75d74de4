// SPDX-License-Identifier: Apache-2.0
// Warnings about layouts that cost more than necessary; good layouts give none.
#include "core/compile/spmd/lower.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const Mesh kMesh = Mesh::standard({1, 2, 4});

// Warnings of a weight brought from one layout to another, without their source line.
std::vector<std::string> of_weight(const std::string& stored, const std::string& used,
                                   const Mesh& mesh = kMesh) {
  Trial trial(mesh, {"f32[\"batch/data=8\"]"});
  const Tensor w = input("w", InputKind::kParameter, parse_type("f32[\"" + stored + "\"]"));
  {
    const PathScope layer("ffn");
    reshard(cast(w, DType::kBF16), used);
  }
  std::vector<std::string> warnings = layout_lint(trial.graph(), mesh);
  for (std::string& each : warnings) {
    REQUIRE_THAT(each, Catch::Contains("layout_lint_test.cc:"));
    each = each.substr(each.find(": ") + 2);
  }
  return warnings;
}

TEST_CASE("A weight whose order of splits is expensive gives a warning with the better order") {
  REQUIRE(of_weight("mlp/data/mdl=32 embed=16", "mlp/mdl embed") ==
          std::vector<std::string>{
              "w is stored as mlp/data/mdl embed and used as mlp/mdl embed, which needs a permute "
              "(256 bytes per device); mlp/mdl/data embed would need 128 bytes: put the mesh axes "
              "that stay outermost [in ffn]"});
  REQUIRE(of_weight("mlp/mdl/data=32 embed=16", "mlp/mdl embed").empty());
  REQUIRE(of_weight("mlp/mdl=32 embed/data=16", "mlp/mdl embed").empty());
}

TEST_CASE("On a mesh of one device no order gives a warning") {
  REQUIRE(
      of_weight("mlp/data/mdl=32 embed=16", "mlp/mdl embed", Mesh::standard({1, 1, 1})).empty());
}

// Warnings of a product that is resharded, without their source line.
std::vector<std::string> of_product(const std::string& weight, const std::string& used,
                                    const Mesh& mesh = kMesh) {
  Trial trial(mesh, {"f32[\"batch/data=8 embed=16\"]", weight});
  const PathScope layer("attention");
  const Tensor q = einsum(trial.inputs()[0], trial.inputs()[1], over("embed"));
  reshard((q * 2.0).named("q"), used);
  std::vector<std::string> warnings = layout_lint(trial.graph(), mesh);
  for (std::string& each : warnings) each = each.substr(each.find(": ") + 2);
  return warnings;
}

TEST_CASE("A product that every device computes whole and then slices gives a warning") {
  REQUIRE(of_product("f32[\"embed=16 heads=4\"]", "batch/data heads/mdl") ==
          std::vector<std::string>{
              "every device along mdl computes all of q, batch/data heads, and keeps its part of "
              "heads/mdl: 4 times the work; split its operands [in attention]"});
  REQUIRE(of_product("f32[\"embed=16 heads/mdl=4\"]", "batch/data heads/mdl").empty());
  REQUIRE(of_product("f32[\"embed=16 heads=4\"]", "batch/data heads").empty());
  REQUIRE(of_product("f32[\"embed=16 heads=4\"]", "batch/data heads/mdl", Mesh::standard({1, 2, 1}))
              .empty());
}

TEST_CASE("Slices of inexpensive values and scattered sums give no warning") {
  Trial trial(kMesh, {"f32[\"batch/data=8 embed/mdl=16\"]", "f32[\"embed/mdl=16 heads=4\"]"});
  const Tensor sum = einsum(trial.inputs()[0], trial.inputs()[1], over("embed"));
  reshard(sum, "batch/data heads/mdl");
  reshard(cast(iota({"heads", 4, {}}), DType::kF32), "heads/mdl");
  REQUIRE(layout_lint(trial.graph(), kMesh).empty());
}

TEST_CASE("Loop bodies are checked, and layers of a stack give one warning") {
  Trial trial(kMesh, {"f32[\"batch/data=8 embed=32\"]"});
  const Tensor w =
      input("w", InputKind::kParameter, parse_type("f32[\"layers=3 embed/data/mdl=32 mlp=8\"]"));
  const auto use = [](const Tensor& weight, const Tensor& x) {
    const Tensor h = einsum(x, reshard(weight, "embed/mdl mlp"), over("embed"));
    return h;
  };
  repeat("layers", 3, {trial.inputs()[0]}, {},
         [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
           const PathScope layer("x_layers[]");
           use(loop_slice(w), reshard(carries[0], "batch/data embed/mdl"));
           return {{carries[0]}, {}};
         });
  for (int i = 0; i < 2; ++i) {
    const PathScope layer("y_layers[" + std::to_string(i) + "]");
    const Tensor v = input("v" + std::to_string(i), InputKind::kParameter,
                           parse_type("f32[\"embed/data/mdl=32 mlp=8\"]"));
    use(v.named("v"), reshard(trial.inputs()[0], "batch/data embed/mdl"));
  }
  const std::vector<std::string> warnings = layout_lint(trial.graph(), kMesh);
  REQUIRE(warnings.size() == 3);  // One for the loop, and one for each of two weights.
  REQUIRE_THAT(warnings[0], Catch::Contains("w is stored as embed/data/mdl mlp") &&
                                Catch::EndsWith("[in x_layers[]]"));
}

}  // namespace
}  // namespace tessera
