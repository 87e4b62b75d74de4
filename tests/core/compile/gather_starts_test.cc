// SPDX-License-Identifier: Apache-2.0
// When gathers start by measured times: as late as they can, after what else uses the links.
#include "core/compile/memory/launch_facts.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Positions = std::vector<size_t>;

// Ten kernels of a second each.
const std::vector<double> kKernels(10, 1.0);

TEST_CASE("A gather starts as late as its time, and half as much again, allows") {
  REQUIRE(latest_starts(kKernels, {{.first_use = 8, .seconds = 2.0}}, {}) == Positions{5});
  REQUIRE(latest_starts(kKernels, {{.first_use = 8, .seconds = 0.5}}, {}) == Positions{7});
  REQUIRE(latest_starts(kKernels, {{.first_use = 8, .seconds = 0.0}}, {}) == Positions{8});
  // It cannot start before the program.
  REQUIRE(latest_starts(kKernels, {{.first_use = 2, .seconds = 4.0}}, {}) == Positions{0});
}

TEST_CASE("Gathers use the links one after another") {
  // The second begins at 5, so that the first must be done by then.
  const std::vector<TimedGather> two = {{.first_use = 7, .seconds = 2.0},
                                        {.first_use = 8, .seconds = 2.0}};
  REQUIRE(latest_starts(kKernels, two, {}) == Positions{2, 5});
}

TEST_CASE("A gather starts before collectives that use the links in its time") {
  const std::vector<TimedGather> one = {{.first_use = 8, .seconds = 2.0}};
  // Busy from 6 to 7: three seconds are free from 4 to 6 and from 7 to 8.
  REQUIRE(latest_starts(kKernels, one, {{.position = 6, .seconds = 1.0}}) == Positions{4});
  // Busy from 4 to 9, the second one because it waits for the first.
  REQUIRE(latest_starts(kKernels, one,
                        {{.position = 4, .seconds = 3.0}, {.position = 6, .seconds = 2.0}}) ==
          Positions{1});
  // Collectives that end before or begin later have no effect.
  REQUIRE(latest_starts(kKernels, one,
                        {{.position = 1, .seconds = 2.0}, {.position = 9, .seconds = 5.0}}) ==
          Positions{5});
}

}  // namespace
}  // namespace tessera
