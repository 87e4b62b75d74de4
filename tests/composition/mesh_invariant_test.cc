// SPDX-License-Identifier: Apache-2.0
// numerics=mesh_invariant: losses, metrics, norms, weights and optimizer state have the same bits
// on every mesh.
#include <cstdlib>

#include "core/base/error.h"
#include "tasks/task/leaves.h"
#include "tests/composition/trial.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

CompositionModel invariant(const Composition& composition, bool on_mesh) {
  CompositionModel model = model_of(composition, on_mesh);
  model.task.train.numerics = Numerics::kMeshInvariant;
  const int64_t batch = model.parts.sizes.batch;
  const Type ids = apply_rules(model.rules.activations, model.mesh,
                               make_type(DType::kI32, {{"batch", batch, {}}}));
  model.task.train.num_microbatches =
      leaves_of_batch(batch) / model.mesh.size_along(ids.axes[0].split);
  return model;
}

void compare(const std::string& text, int64_t steps) {
  const Composition composition = parse_composition(text);
  INFO(composition.text());
  try {
    const RunNumbers expected = numbers_of(invariant(composition, false), steps);
    const RunNumbers got = numbers_of(invariant(composition, true), steps);
    REQUIRE(got.size() == expected.size());
    std::string first;
    int64_t different = 0;
    for (const auto& [name, values] : expected) {
      if (got.at(name) == values) continue;
      ++different;
      if (first.empty()) first = name;
    }
    fmt::print("{}: {} of {} differ, first {}\n", text, different, expected.size(), first);
    if (different != 0) FAIL_CHECK("differ");
  } catch (const Error& error) {
    fmt::print("{}: {}\n", text, error.what());
    FAIL_CHECK(error.what());
  }
}

TEST_CASE("drawn mesh-invariant compositions", "[.]") {
  const int first = std::atoi(std::getenv("FIRST")), last = std::atoi(std::getenv("LAST"));
  for (int i = first; i < last; ++i) {
    fmt::print("{} ", i);
    compare(drawn_composition(static_cast<uint32_t>(i)).text(), 2);
  }
}

TEST_CASE("one mesh-invariant composition", "[.]") {
  const char* const text = std::getenv("TESSERA_COMPOSITION");
  compare(text != nullptr ? text : "seed=1 layers=2 mesh=fsdp:2", 2);
}

}  // namespace
}  // namespace tessera
