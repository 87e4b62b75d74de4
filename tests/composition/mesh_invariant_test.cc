// SPDX-License-Identifier: Apache-2.0
// numerics=mesh_invariant: losses, metrics, norms, weights and optimizer state have the same bits
// on every mesh. Three recipes on twenty meshes each; drawn compositions; what is refused, by name.
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/leaves.h"
#include "tests/composition/runs.h"
#include "tests/composition/trial.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

// Sizes that all meshes below divide.
constexpr CompositionSizes kSizes{.vocab = 48,
                                  .embed = 48,
                                  .heads = 12,
                                  .head_dim = 4,
                                  .hidden = 48,
                                  .batch = 12,
                                  .seq = 24,
                                  .experts = 12};

CompositionModel invariant(const Composition& composition, Place place,
                           const std::optional<CompositionSizes>& sizes = {}) {
  CompositionModel model = model_of(composition, Place::kMesh, sizes);
  TrainHParams& train = model.task.train;
  if (place == Place::kOneDevice) {  // With the chunks of the loss that the mesh has.
    model.mesh = Mesh::standard({1, 1, 1});
    model.rules = {};
    train.pipeline_schedule = {};
    train.layers_per_piece = {};
  }
  train.numerics = Numerics::kMeshInvariant;
  const int64_t batch = model.parts.sizes.batch;
  const Type ids = apply_rules(model.rules.activations, model.mesh,
                               make_type(DType::kI32, {{"batch", batch, {}}}));
  // A pipeline's schedule is for the leaves of a device.
  train.num_microbatches =
      std::max<int64_t>(1, leaves_of_batch(batch) / model.mesh.size_along(ids.axes[0].split));
  return model;
}

RunNumbers numbers_of(CompositionModel model, int64_t steps) {
  const Numerics numerics = model.task.train.numerics;
  return run_steps(traced(std::move(model)), numerics, steps);
}

// The names of the first numbers that differ, "" if none does.
std::string first_differences(const RunNumbers& got, const RunNumbers& expected) {
  constexpr size_t kMostText = 500;
  std::string names;
  for (const auto& [name, values] : expected)
    if (names.size() < kMostText && (!got.contains(name) || got.at(name) != values))
      names += name + "; ";
  return names.empty() && got.size() != expected.size() ? "the number of numbers" : names;
}

struct Recipe {
  std::string model;
  std::vector<std::string> meshes;
};

const Recipe kDense{
    "seed=1 layers=2 features=qk_norm,biases,dropout,packing,token_weights,clip,noise",
    {"fsdp:2",
     "fsdp:3",
     "fsdp:4",
     "fsdp:6",
     "replica:2,fsdp:2",
     "fsdp_width:2,tensor:2",
     "tensor:2",
     "tensor:3",
     "tensor:4",
     "sequence:2",
     "sequence:6",
     "vocab:4",
     "ring:2",
     "ring:3",
     "fsdp_ring:4",
     "context:4",
     "fsdp:2,tensor:4",
     "fsdp:2,sequence:3",
     "fsdp:2,ring:2,tensor:2",
     "replica:2/slices,fsdp:2,sequence:4"}};
const Recipe kExperts{"seed=2 layers=2 features=experts,losses,packing,token_weights,clip",
                      {"fsdp:2",
                       "fsdp:3",
                       "fsdp:4",
                       "fsdp:6",
                       "experts:2",
                       "experts:3",
                       "experts:4",
                       "experts:6",
                       "replica:2,experts:2",
                       "tensor:2",
                       "tensor:4",
                       "sequence:2",
                       "sequence:3",
                       "vocab:2",
                       "ring:2",
                       "context:2",
                       "experts:2,tensor:2",
                       "fsdp:2,sequence:4",
                       "experts:2,ring:2,tensor:2",
                       "replica:2/slices,experts:2,sequence:2"}};
const Recipe kPipeline{"seed=3 layers=12 features=untied,repeated,dropout,padding,clip",
                       {"stages=2:1f1b",
                        "stages=3:1f1b",
                        "stages=4:1f1b",
                        "stages=6:1f1b",
                        "stages=2:zero_bubble",
                        "stages=4:zero_bubble",
                        "stages=2:interleaved",
                        "stages=3:interleaved",
                        "mesh=fsdp:2 stages=2:1f1b",
                        "mesh=fsdp:3 stages=2:1f1b",
                        "mesh=fsdp:2 stages=4:zero_bubble",
                        "mesh=replica:2 stages=3:1f1b",
                        "mesh=tensor:2 stages=2:1f1b",
                        "mesh=tensor:3 stages=2:interleaved",
                        "mesh=sequence:2 stages=2:1f1b",
                        "mesh=ring:2 stages=2:zero_bubble",
                        "mesh=context:2 stages=2:1f1b",
                        "mesh=fsdp:2,tensor:2 stages=2:1f1b",
                        "mesh=fsdp:2,sequence:2 stages=2:interleaved",
                        "mesh=replica:2/slices,fsdp:2 stages=2:1f1b"}};

Composition on(const Recipe& recipe, const std::string& mesh) {
  return parse_composition(recipe.model + (mesh.starts_with("stages") ? " " : " mesh=") +
                           (mesh.starts_with("mesh=") ? mesh.substr(5) : mesh));
}

// With Newton-Schulz in bf16, whose roundings would show each difference between meshes.
CompositionModel with_muon_in_bf16(CompositionModel model) {
  auto& optimizer_tpl = model.task.learner.optimizer_tpl;
  if (optimizer_tpl.holds<Muon::HParams>()) optimizer_tpl.as<Muon::HParams>().dtype = DType::kBF16;
  return model;
}

// Every `stride`-th mesh, from `first` on.
void run_recipe(const Recipe& recipe, int64_t steps, size_t first, size_t stride) {
  const RunNumbers expected = numbers_of(
      with_muon_in_bf16(invariant(parse_composition(recipe.model), Place::kOneDevice, kSizes)),
      steps);
  for (size_t i = first; i < recipe.meshes.size(); i += stride) {
    const Composition composition = on(recipe, recipe.meshes[i]);
    INFO(composition.text());
    const RunNumbers got =
        numbers_of(with_muon_in_bf16(invariant(composition, Place::kMesh, kSizes)), steps);
    REQUIRE(first_differences(got, expected) == "");
  }
}

TEST_CASE("a mesh-invariant step has the same bits on some meshes") {
  run_recipe(kDense, 2, 1, 5);
  run_recipe(kExperts, 2, 2, 7);
  run_recipe(kPipeline, 2, 10, 7);
}

TEST_CASE("a mesh-invariant step with Muon has the same bits on some meshes") {
  for (Recipe recipe : {kDense, kExperts, kPipeline}) {
    recipe.model += ",muon";
    run_recipe(recipe, 2, 3, 8);
  }
}

TEST_CASE("leaves of several examples are the same on every mesh") {
  CompositionSizes sizes = kSizes;
  sizes.batch = 20;  // Four leaves of five examples.
  const auto numbers_on = [&](const std::string& mesh, Place place) {
    return numbers_of(invariant(on(kDense, mesh), place, sizes), 2);
  };
  const RunNumbers expected = numbers_on("fsdp:2", Place::kOneDevice);
  for (const std::string mesh : {"fsdp:2", "replica:4", "fsdp:2,tensor:2"})
    REQUIRE(first_differences(numbers_on(mesh, Place::kMesh), expected) == "");
}

TEST_CASE("fifty mesh-invariant steps have the same bits on twenty meshes", "[full]") {
  for (const Recipe* recipe : {&kDense, &kExperts, &kPipeline}) run_recipe(*recipe, 50, 0, 1);
}

TEST_CASE("fifty mesh-invariant steps with Muon have the same bits on twenty meshes", "[full]") {
  for (Recipe recipe : {kDense, kExperts, kPipeline}) {
    recipe.model += ",muon";
    run_recipe(recipe, 50, 0, 1);
  }
}

TEST_CASE("fifty mesh-invariant steps in bf16 have the same bits on twenty meshes", "[full]") {
  for (Recipe recipe : {kDense, kExperts, kPipeline}) {
    recipe.model += ",bf16";
    run_recipe(recipe, 50, 0, 1);
  }
}

TEST_CASE("a mesh-invariant gradient is not rounded to the dtype in which devices reduce") {
  for (const DType reduce : {DType::kF32, DType::kBF16}) {
    const Composition composition = on(kDense, "sequence:2");
    const auto numbers_on = [&](Place place) {
      CompositionModel model = invariant(composition, place, kSizes);
      model.task.dtypes = DTypePolicy{.compute = DType::kBF16, .reduce = reduce};
      return numbers_of(std::move(model), 1);
    };
    REQUIRE(first_differences(numbers_on(Place::kMesh), numbers_on(Place::kOneDevice)) == "");
  }
}

TEST_CASE("steps with standard numerics differ in bits") {
  const Composition composition = on(kDense, "fsdp:2,tensor:4");
  REQUIRE(first_differences(numbers_of(model_of(composition, Place::kMesh, kSizes), 1),
                            numbers_of(model_of(composition, Place::kOneDevice, kSizes), 1)) != "");
}

// What differs between the composition's mesh and one device. Error if it is refused.
std::string differences_of(const Composition& composition) {
  const RunNumbers got = numbers_of(invariant(composition, Place::kMesh), 2);
  return first_differences(got, numbers_of(invariant(composition, Place::kOneDevice), 2));
}

bool differs(const Composition& composition) {
  try {
    return !differences_of(composition).empty();
  } catch (const Error&) {
    return false;
  }
}

TEST_CASE("a mesh-invariant encoder has the same bits where a ring splits its sequences") {
  for (const std::string mesh : {"ring:2", "fsdp_ring:4"})
    REQUIRE(differences_of(parse_composition("seed=1 layers=1 features=encoder mesh=" + mesh)) ==
            "");
}

TEST_CASE("drawn compositions are mesh-invariant or refused", "[full]") {
  int64_t ran = 0;
  std::map<std::string, int64_t> refused;
  for (uint32_t number = 5000; number < 6000; ++number) {
    const Composition composition = drawn_composition(number);
    try {
      if (!differences_of(composition).empty())
        FAIL_CHECK("draw " << number << ": " << composition.text()
                           << "\n  smallest: " << shrunk(composition, differs).text());
      ++ran;
    } catch (const Error& error) {
      ++refused[kind_of_refusal(error.what())];
    }
  }
  for (const auto& [message, count] : refused) fmt::print("refused {} times: {}\n", count, message);
  fmt::print("{} of 1000 compositions ran\n", ran);
  REQUIRE(ran > 600);
}

TEST_CASE("a mesh-invariant run resumes on another mesh with the same bits") {
  const auto on_mesh = [](const std::string& mesh) {
    return parse_composition("seed=8 layers=1 features=experts,aux_losses,dropout,clip,ema mesh=" +
                             mesh);
  };
  const Numerics numerics = Numerics::kMeshInvariant;
  const TemporaryDirectory directory;
  train(on_mesh("replica:1"), 6, directory / "whole", numerics);
  train(on_mesh("experts:2,tensor:2"), 2, directory / "moved", numerics);
  train(on_mesh("fsdp:4"), 4, directory / "moved", numerics);
  train(on_mesh("sequence:2"), 6, directory / "moved", numerics);
  const std::vector<std::string> lines = lines_of_steps(directory / "whole");
  REQUIRE(lines.size() == 6);
  REQUIRE(lines.front().find("parameter_norm/") != std::string::npos);
  REQUIRE(lines == lines_of_steps(directory / "moved"));
}

TEST_CASE("one mesh-invariant composition", "[.]") {
  const char* const text = std::getenv("TESSERA_COMPOSITION");
  const Composition composition =
      parse_composition(text != nullptr ? text : "seed=1 features=clip mesh=fsdp:2,tensor:2");
  const std::string differences = differences_of(composition);
  if (!differences.empty()) fmt::print("smallest: {}\n", shrunk(composition, differs).text());
  REQUIRE(differences == "");
}

TEST_CASE("what is not mesh-invariant is refused by name") {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      numbers_of(invariant(parse_composition(text), Place::kMesh), 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using Catch::Contains;
  REQUIRE_THAT(refusal("layers=2 features=untied,repeated stages=2:gpipe"),
               Contains("schedule GPipe runs B of stage 0 in the order 7 6 5 4 3 2 1 0"));
  REQUIRE_THAT(refusal("layers=2 features=repeated stages=2:1f1b"),
               Contains("stages 0 and 1 have terms of one sum over microbatches: gradient of "
                        "lm.softmax.w"));
  CompositionSizes sizes = kSizes;
  sizes.batch = 10;
  REQUIRE_THROWS_WITH(
      numbers_of(invariant(parse_composition("layers=1 mesh=replica:5"), Place::kMesh, sizes), 1),
      Contains("a batch of 10 has 2 leaves") && Contains("the 5 devices that split it (replica)"));
}

}  // namespace
}  // namespace tessera
