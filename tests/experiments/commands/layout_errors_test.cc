// SPDX-License-Identifier: Apache-2.0
// The whole message for rules that do not fit the model or the mesh: it names the tensor, the
// layer, its line and a fix. Every mistake that does not depend on sizes is found on one device,
// too.
#include <regex>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Settings = std::vector<std::string>;

// The last line that planning prints, with source line numbers as '#'; the exit code must be 2.
std::string refusal(const std::string& experiment, const Settings& settings) {
  const TemporaryDirectory directory;
  auto [code, output] =
      run_program(directory.path(), "runexp", {"--exp=" + experiment, "--mode=plan"}, settings);
  INFO(output);
  REQUIRE(code == 2);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  output = output.substr(output.rfind('\n') + 1);
  return std::regex_replace(output, std::regex(R"(\.cc:\d+)"), ".cc:#");
}

// The message, which must be the same on eight devices and on one, except for the mesh's sizes.
std::string refused_alike(const std::string& experiment, const Settings& settings) {
  const auto on = [&](const std::string& mesh) {
    Settings with = settings;
    with.push_back("ici_mesh_shape=" + mesh);
    return std::regex_replace(refusal(experiment, with), std::regex(R"((data|mdl)=\d)"), "$1=#");
  };
  const std::string many = on("[1,2,4]");
  REQUIRE(on("[1,1,1]") == many);
  return many;
}

const std::string kLm = "quickstart.SourceLm";

TEST_CASE("rules that give operands clashing layouts are refused at the op") {
  REQUIRE(refused_alike(kLm, {"rules.activations=batch -> data, heads -> mdl"}) ==
          "runexp: layers/attention/dot_product_attention.cc:#: attention: query has heads/mdl, "
          "key has kv_heads; split "
          "both the same way with rules.activations [in lm.transformer.x_layers[0].attention]");
  REQUIRE(refused_alike(kLm, {"rules.activations=batch -> data, head_dim -> mdl"}) ==
          "runexp: layers/embeddings/position_embedding.cc:#: rotary: head_dim of query_proj is "
          "split over mdl; "
          "reshard it to unsplit head_dim [in lm.transformer.x_layers[0].attention.rotary]");
}

TEST_CASE("a layer's own rules that clash with its neighbours are refused at the op") {
  const std::string ffn =
      "task.model.lm_tpl.stacked_transformer_tpl.block_tpl.ffn_tpl.rules.activations=";
  const std::string message =
      refused_alike("c4.Spmd1BSmoke", {"strategy=tensor", ffn + "residual: embed -> mdl"});
  REQUIRE_THAT(message, Catch::Contains("layers/models/transformer.cc:#: add: ") &&
                            Catch::Contains("has embed/mdl") && Catch::Contains("has embed, ") &&
                            Catch::EndsWith("[in lm.transformer.x_layers[]]"));
}

TEST_CASE("unknown mesh axes are refused, with the nearest name") {
  REQUIRE_THAT(refused_alike(kLm, {"rules.activations=batch -> data, mlp -> model"}),
               Catch::StartsWith("runexp: rules.activations: ") &&
                   Catch::Contains("the mesh (replica=1 data=# mdl=#) has no axis 'model'; did you "
                                   "mean 'mdl'?"));
  REQUIRE_THAT(refused_alike(kLm, {"rules.weights=embed -> dta"}),
               Catch::StartsWith("runexp: rules.weights: ") &&
                   Catch::EndsWith("has no axis 'dta'; did you mean 'data'?"));
}

TEST_CASE("rules with syntax errors are refused with the position") {
  REQUIRE(refused_alike(kLm, {"rules.activations=batch data"}) ==
          "runexp: rules \"batch data\": expected '->' at character 7, got 'data'");
}

TEST_CASE("sizes that the mesh does not divide are refused with the nearest valid size") {
  REQUIRE(refusal(kLm, {"ici_mesh_shape=[1,1,3]", "rules.weights=heads -> mdl"}) ==
          "runexp: lm.transformer.x_layers[0].attention.query: heads=4 cannot be split by mdl=3; "
          "the nearest size that can is 3 [in lm.transformer.x_layers[0].attention.query]");
  REQUIRE(refusal(kLm, {"ici_mesh_shape=[1,3,1]"}) ==
          "runexp: global_batch_size: batch=16 cannot be split by replica*data=3; the nearest size "
          "that can is 15 [in input]; the nearest mesh of 3 devices that fits is --set "
          "mesh.ici_mesh_shape=[1,1,3], and --mode=plan --search --devices=3 --hardware=NAME finds "
          "the best one");
}

}  // namespace
}  // namespace tessera
