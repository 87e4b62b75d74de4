// SPDX-License-Identifier: Apache-2.0
#include "tasks/experiment.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("without shapes all devices go to data") {
  REQUIRE(make_mesh({}, 8).text() == "replica=1 data=8 mdl=1");
  REQUIRE(make_mesh({.dcn_mesh_shape = {2, 1, 1}}, 8).size("data") == 4);
}

TEST_CASE("shapes multiply, and must come to the devices there are") {
  const MeshConfig config{.ici_mesh_shape = {1, 2, 2}, .dcn_mesh_shape = {2, 1, 1}};
  const Mesh mesh = make_mesh(config, 8);
  REQUIRE(mesh.size("replica") == 2);
  REQUIRE(mesh.size("data") == 2);
  REQUIRE(mesh.size("mdl") == 2);
  REQUIRE_THROWS_WITH(make_mesh(config, 4), Catch::Contains("takes 8 devices, but there are 4"));
  REQUIRE_THROWS_WITH(make_mesh({.ici_mesh_shape = {2, 2}}, 4),
                      Catch::Contains("mesh.ici_mesh_shape has 2 sizes, expected one for each"));
  REQUIRE_THROWS_WITH(make_mesh({.dcn_mesh_shape = {3, 1, 1}}, 8),
                      Catch::Contains("8 devices cannot be shared out among 3 slices"));
}

TEST_CASE("axis rules come from their text") {
  const AxisRules rules = make_rules({.weights = "embed -> data"});
  REQUIRE(rules.weights.at(0).axis == "embed");
  REQUIRE(rules.activations.at(0).mesh == std::vector<std::string>{"replica", "data"});
}

}  // namespace
}  // namespace tessera
