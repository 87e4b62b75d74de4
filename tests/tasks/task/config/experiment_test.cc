// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/config/experiment.h"

#include "core/base/error.h"
#include "inputs/synthetic_input.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("without mesh shapes all devices are on axis data") {
  REQUIRE(make_mesh({}, 8).text() == "replica=1 data=8 mdl=1");
  REQUIRE(make_mesh({.dcn_mesh_shape = {2, 1, 1}}, 8).size("data") == 4);
}

TEST_CASE("mesh shapes multiply to the number of devices") {
  const MeshConfig config{.ici_mesh_shape = {1, 2, 2}, .dcn_mesh_shape = {2, 1, 1}};
  const Mesh mesh = make_mesh(config, 8);
  REQUIRE(mesh.size("replica") == 2);
  REQUIRE(mesh.size("data") == 2);
  REQUIRE(mesh.size("mdl") == 2);
  REQUIRE_THROWS_WITH(make_mesh(config, 4),
                      Catch::Contains("needs 8 devices, but 4 are available"));
  REQUIRE_THROWS_WITH(make_mesh(config, 4),
                      Catch::Contains("give --devices=8, or change mesh.ici_"));
  REQUIRE_THROWS_WITH(make_mesh({.ici_mesh_shape = {2, 2}}, 4),
                      Catch::Contains("mesh.ici_mesh_shape has 2 sizes, expected one for each"));
  REQUIRE_THROWS_WITH(
      make_mesh({.dcn_mesh_shape = {3, 1, 1}}, 8),
      Catch::Contains("8 devices cannot be divided among 3 slices (dcn_mesh_shape); "
                      "the nearest multiple is 9"));
}

TEST_CASE("a mesh of another number of devices is rejected with both ways to fix it") {
  const auto message = [](std::vector<int64_t> shape, const AvailableDevices& devices) {
    try {
      make_mesh({.ici_mesh_shape = std::move(shape)}, devices);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  REQUIRE(message({1, 4, 2}, 4) ==
          "mesh replica=1 data=4 mdl=2 needs 8 devices, but 4 are available; give --devices=8, or "
          "--set ici_mesh_shape=[1,2,2]");
  REQUIRE(message({1, 1, 1}, 2) ==
          "mesh replica=1 data=1 mdl=1 needs 1 device, but 2 are available; give --devices=1, or "
          "--set ici_mesh_shape=[1,2,1]");
  REQUIRE(message({1, 4, 1}, 1) ==
          "mesh replica=1 data=4 mdl=1 needs 4 devices, but 1 is available; give --devices=4, or "
          "--set ici_mesh_shape=[1,1,1]");
  REQUIRE(message({2, 2, 4}, {2, 4}) ==
          "mesh replica=2 data=2 mdl=4 needs 16 devices, but 4 processes with 2 each have 8; give "
          "--devices=4, or --set ici_mesh_shape=[1,2,4]");
  REQUIRE(
      message({1, 4, 1}, {2, 3}) ==
      "mesh replica=1 data=4 mdl=1 needs 4 devices, but 3 processes with 2 each have 6; start a "
      "number of processes that divides 4, or --set ici_mesh_shape=[1,6,1]");
}

TEST_CASE("the advice for a mesh with other axes names the field to set, and following it works") {
  const MeshConfig axes{.axis_names = {"rows", "columns"}};
  const auto advised = [](MeshConfig config, int64_t devices) {
    try {
      make_mesh(config, devices);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string none = advised(axes, 6);
  REQUIRE(none ==
          "the mesh has no axis 'data' for the 6 devices; give --set mesh.ici_mesh_shape=[6,1]");
  MeshConfig shaped = axes;
  shaped.ici_mesh_shape = {2, 4};
  REQUIRE_THAT(advised(shaped, 6), Catch::EndsWith("or --set mesh.ici_mesh_shape=[3,2]"));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{6, 1}, {3, 2}}) {
    shaped.ici_mesh_shape = shape;
    REQUIRE(make_mesh(shaped, 6).num_devices() == 6);
  }
}

TEST_CASE("a mesh is planned without the devices") {
  const MeshConfig config{.ici_mesh_shape = {1, 12, 16}, .dcn_mesh_shape = {8, 1, 1}};
  REQUIRE(planned_mesh(config, 1).num_devices() == 1536);
  REQUIRE(planned_mesh({}, 8).size("data") == 8);
}

TEST_CASE("axis rules are parsed from text") {
  const AxisRules rules = make_rules({.weights = "embed -> data"});
  REQUIRE(rules.weights.at(0).axis == "embed");
  REQUIRE(rules.activations.at(0).mesh == std::vector<std::string>{"replica", "data"});
}

TEST_CASE("a strategy with stages splits the layers over a mesh axis before the others") {
  using enum Strategy;
  const std::vector<std::string> standard = MeshConfig{}.axis_names;
  REQUIRE(strategy_axes(kPipeline, standard) ==
          std::vector<std::string>{"stage", "replica", "data", "mdl"});
  REQUIRE(strategy_axes(kFullyShardedPipeline, {"data", "stage"}) ==
          std::vector<std::string>{"data", "stage"});
  REQUIRE(strategy_axes(kFullyShardedTensor, standard) == standard);
  REQUIRE(strategy_rules(kPipeline).weights == "layers -> stage");
  REQUIRE(strategy_rules(kPipeline).activations == "batch -> (replica, data)");
  REQUIRE(strategy_rules(kFullyShardedPipeline).weights == "layers -> stage, embed -> data");
  const std::string tensor = "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl";
  REQUIRE(strategy_rules(kTensorPipeline).weights == "layers -> stage, " + tensor);
  REQUIRE(strategy_rules(kFullyShardedTensorPipeline).weights ==
          "layers -> stage, embed -> data, " + tensor);
  REQUIRE(strategy_rules(kFullyShardedTensorPipeline).activations ==
          "batch -> (replica, data), " + tensor);
}

TEST_CASE("eval options cover all datasets, and options set for unknown ones are kept") {
  ExperimentConfig config;
  config.eval_inputs["books"] = SyntheticInput::HParams{};
  config.eval.datasets["gone"];
  config.eval.datasets["misspelt"].num_batches = 3;
  const auto datasets = with_all_evals(config).eval.datasets;
  REQUIRE(datasets.size() == 2);
  REQUIRE(datasets.contains("books"));
  REQUIRE(datasets.contains("misspelt"));  // A later check reports that there is no such dataset.
}

struct Hiding : Experiment {
  using Base = Experiment;
  std::string strategy = "mine";
  FIELDS(strategy)
  ExperimentConfig build() const override { return {}; }
};

TEST_CASE("an experiment cannot have a knob with the name of one that every experiment has") {
  REQUIRE_THAT(error_of([] { to_tree(Hiding()); }),
               Catch::Contains("Hiding has two fields called 'strategy'"));
}

}  // namespace
}  // namespace tessera
