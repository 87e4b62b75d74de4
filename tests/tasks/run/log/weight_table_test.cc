// SPDX-License-Identifier: Apache-2.0
// The table of weights that a run prints when it starts.
#include "tasks/run/log/weight_table.h"

#include <fmt/format.h>

#include "tests/support/catch.h"

namespace tessera {
namespace {

Parameter weight(const std::string& path, const std::string& type, WeightInit init = ones()) {
  Parameter parameter;
  parameter.path = path;
  parameter.type = parse_type(type);
  parameter.init = init;
  return parameter;
}

ParameterTable table_of(const std::vector<Parameter>& parameters) {
  ParameterTable table;
  for (const Parameter& each : parameters) table.add(each);
  return table;
}

TEST_CASE("weights of equal layers are listed below one line with their number and total") {
  std::vector<Parameter> weights = {
      weight("lm.softmax.w", "f32[\"vocab=264 embed=128\"]", {InitKind::kGaussian, 0.02})};
  for (int i = 0; i < 4; ++i) {
    const std::string layer = "lm.transformer.x_layers[" + std::to_string(i) + "].";
    weights.push_back(weight(layer + "norm.scale", "f32[\"embed=128\"]"));
    weights.push_back(
        weight(layer + "ffn.up", "f32[\"embed=128 mlp=384\"]", {InitKind::kGaussian, 0.00707107}));
  }
  weights.push_back(weight("lm.final_ln.scale", "f32[\"embed=128\"]"));
  REQUIRE(fmt::format("\n{}", weight_table(table_of(weights))) == R"(
lm.softmax.w       f32[vocab=264 embed=128]   33.8k              gaussian 0.02
lm.transformer.x_layers[0..3]                197.1k = 4 x 49.3k
  norm.scale       f32[embed=128]               512 = 4 x 128    constant 1
  ffn.up           f32[embed=128 mlp=384]    196.6k = 4 x 49.2k  gaussian 0.00707
lm.final_ln.scale  f32[embed=128]               128              constant 1
)");
}

TEST_CASE(
    "a stacked layer counts as one; layers with other layouts or initial values are listed apart") {
  Parameter ruled = weight("a[1].w", "f32[\"embed=8\"]");
  ruled.rules = parse_rules("embed -> mdl");
  Parameter laid_out = weight("a[2].w", "f32[\"embed=8\"]");
  laid_out.layout = parse_type("f32[\"embed/mdl=8\"]").axes;
  const ParameterTable table =
      table_of({weight("x[].w", "f32[\"layers=3 embed=8\"]"), weight("a[0].w", "f32[\"embed=8\"]"),
                ruled, laid_out, weight("a[3].w", "f32[\"embed=8\"]", zeros()),
                weight("a[4].w", "f32[\"embed=8\"]")});
  REQUIRE(fmt::format("\n{}", weight_table(table)) == R"(
x[]                         24
  w  f32[layers=3 embed=8]  24          constant 1
a[0,4]                      16 = 2 x 8
  w  f32[embed=8]           16 = 2 x 8  constant 1
a[1]                         8
  w  f32[embed=8]            8          constant 1
a[2]                         8
  w  f32[embed=8]            8          constant 1
a[3]                         8
  w  f32[embed=8]            8          constant 0
)");
}

TEST_CASE("the parts of a sequence of layers are folded as a list is") {
  std::vector<Parameter> weights;
  for (int i = 0; i < 12; ++i)
    weights.push_back(
        weight(fmt::format("lm.transformer.part{}.x_layers[0].up", i), "f32[\"embed=8 mlp=8\"]"));
  REQUIRE(fmt::format("\n{}", weight_table(table_of(weights))) == R"(
lm.transformer.part[0..11].x_layers[0]  768 = 12 x 64
  up  f32[embed=8 mlp=8]  768 = 12 x 64  constant 1
)");
}

TEST_CASE("a model without weights has an empty table") {
  REQUIRE(weight_table(ParameterTable()).empty());
}

}  // namespace
}  // namespace tessera
