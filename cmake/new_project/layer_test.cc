// SPDX-License-Identifier: Apache-2.0
// Tests of Ffn: its result, its gradients, and sharding on a mesh of four. Run by `ctest`.
#include "ffn.h"
#include "tasks/testing/tested_layer.h"

namespace my_project {
namespace {

using namespace tessera;

const Ffn::HParams kSmall{.model_dims = 4, .hidden_dims = 6};
const std::string kInput = "f32[\"batch=2 seq=2 embed=4\"]";

void computes_its_formula() {
  const Ffn::HParams one{.model_dims = 1, .hidden_dims = 1};
  const TestedLayer layer(one, "f32[\"batch=1 embed=1\"]",
                          {.values = {{"x", {3}}, {"up", {0.5}}, {"scale", {2}}, {"down", {10}}}});
  expect_near(layer.result(), {45});  // (2 · 1.5²) · 10
}

void has_correct_gradients() { TestedLayer(kSmall, kInput).check_gradients(); }

void works_on_a_mesh() {
  const LayerSetting four{
      .mesh = {.ici_mesh_shape = {1, 2, 2}},
      .rules = {.weights = "embed -> data, mlp -> mdl",
                .activations = "residual: seq -> mdl, batch -> data, mlp -> mdl"}};
  TestedLayer(kSmall, kInput, four).check_gradients();
}

}  // namespace
}  // namespace my_project

int main() {
  using namespace my_project;
  return tessera::run_layer_tests({{"computes its formula", computes_its_formula},
                                   {"has correct gradients", has_correct_gradients},
                                   {"works on a mesh", works_on_a_mesh}});
}
