// SPDX-License-Identifier: Apache-2.0
// Random programs with gradients in random layouts: the devices of a mesh compute what one device
// computes.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/compile/cost.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/schedule/schedule.h"
#include "core/graph/verify.h"
#include "tests/support/catch.h"
#include "tests/support/random_layouts.h"
#include "tests/support/simulated_mesh.h"

namespace tessera {
namespace {

std::vector<Mesh> meshes() {
  return {Mesh({{"data", 2}, {"mdl", 2}}), Mesh({{"data", 4}}),
          Mesh({{"replica", 2}, {"data", 2}, {"mdl", 1}}),
          // Slices of different devices, joined by slow links.
          Mesh({{"data", 2, 2}}), Mesh({{"replica", 1, 2}, {"data", 2}})};
}

size_t run(uint64_t first_seed, uint64_t count) {
  size_t communicating = 0;
  const std::vector<Mesh> all = meshes();
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    const Mesh& mesh = all[seed % all.size()];
    INFO("seed " << seed << " on " << mesh.text());
    RandomLayouts program(seed, mesh);
    program.differentiate();
    const ReferenceInputs inputs = program.sample(seed);
    const auto expected = evaluate(program.graph(), inputs, mesh);
    const SimulatedMesh devices(program.graph(), mesh);
    for (int64_t device = 0; device < mesh.num_devices(); ++device)
      verify(devices.lowered(device), Mesh(), "lower");
    verify(schedule(fuse(devices.lowered(1))), Mesh(), "fuse");
    const auto got = devices.run(inputs);
    REQUIRE(got.size() == expected.size());
    for (const auto& [name, array] : expected) {
      INFO(name);
      double worst = 0.0, largest = 1.0;
      for (size_t i = 0; i < array.values.size(); ++i) {
        worst = std::max(worst, std::abs(array.values[i] - got.at(name)[i]));
        largest = std::max(largest, std::abs(array.values[i]));
      }
      // Sums in another order, in double.
      REQUIRE(worst <= 1e-11 * largest);
    }
    communicating += collectives(devices.lowered(0)).empty() ? 0 : 1;
  }
  return communicating;
}

TEST_CASE("A mesh computes what one device computes, for random programs") {
  REQUIRE(run(0, 100) >= 95);
}

TEST_CASE("A mesh computes what one device computes, for many random programs", "[full]") {
  REQUIRE(run(5000, 3000) >= 2900);
}

}  // namespace
}  // namespace tessera
