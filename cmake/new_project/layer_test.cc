// SPDX-License-Identifier: Apache-2.0
// What Ffn computes, its gradients, and its sharding on a mesh of four. `ctest` runs it.
#include "ffn.h"
#include "tasks/testing/tested_layer.h"

namespace my_project {
namespace {

using namespace tessera;

const Ffn::HParams kSmall{.model_dims = 4, .hidden_dims = 6};
const std::string kInput = "f32[\"batch=2 seq=2 embed=4\"]";

void computes_what_it_says() {
  const Ffn::HParams one{.model_dims = 1, .hidden_dims = 1};
  const TestedLayer layer(one, "f32[\"batch=1 embed=1\"]",
                          {.values = {{"x", {3}}, {"up", {0.5}}, {"scale", {2}}, {"down", {10}}}});
  expect_near(layer.result(), {45});  // (2 · 1.5²) · 10
}

void has_right_gradients() { TestedLayer(kSmall, kInput).check_gradients(); }

void is_sharded_right() {
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
  return tessera::run_layer_tests({{"computes what it says", computes_what_it_says},
                                   {"has right gradients", has_right_gradients},
                                   {"is sharded right", is_sharded_right}});
}
