// SPDX-License-Identifier: Apache-2.0
// Compositions of features and meshes give one device's numbers: to 1e-12 in f64, and within
// rounding by the kernels of the CPU.
#include "tests/composition/composition.h"

#include <cstdlib>
#include <map>

#include "core/base/error.h"
#include "tests/composition/trial.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string command_of(const Composition& composition) {
  return fmt::format("TESSERA_COMPOSITION='{}' build/release/bin/test_composition one",
                     composition.text());
}

// Runs compositions, and shows how often what was refused.
void run_draws(uint32_t first, uint32_t count, int64_t least) {
  int64_t ran = 0;
  std::map<std::string, std::vector<uint32_t>> refused;
  for (uint32_t number = first; number < first + count; ++number) {
    const Composition composition = drawn_composition(number);
    const Verdict verdict = verdict_on(composition);
    if (verdict.refusal) {
      refused[*verdict.refusal].push_back(number);
      continue;
    }
    ++ran;
    if (!verdict.fails()) continue;
    const Composition least_failing =
        shrunk(composition, [](const Composition& each) { return verdict_on(each).fails(); });
    FAIL_CHECK("draw " << number << ": " << verdict.text() << "\n  " << command_of(composition)
                       << "\n  smallest: " << verdict_on(least_failing).text() << "\n  "
                       << command_of(least_failing));
  }
  for (const auto& [message, numbers] : refused)
    fmt::print("refused {} times, such as draw {}: {}\n", numbers.size(), numbers.front(), message);
  fmt::print("{} compositions of {} ran\n", ran, count);
  REQUIRE(ran >= least);
}

TEST_CASE("forty compositions of features and meshes give one device's numbers") {
  run_draws(1, 40, 20);
}

TEST_CASE("two thousand compositions of features and meshes give one device's numbers", "[full]") {
  run_draws(1000, 2000, 1000);
}

TEST_CASE("a composition is read as it is written") {
  for (uint32_t number = 0; number < 200; ++number) {
    const Composition composition = drawn_composition(number);
    REQUIRE(parse_composition(composition.text()) == composition);
  }
  REQUIRE(parse_composition("17") == drawn_composition(17));
  REQUIRE_THROWS_WITH(parse_composition("features=gqq"), Catch::Contains("did you mean 'gqa'"));
  REQUIRE_THROWS_WITH(parse_composition("mesh=fsdb:2"), Catch::Contains("did you mean 'fsdp'"));
  REQUIRE_THROWS_WITH(parse_composition("seeds=1"), Catch::Contains("did you mean 'seed'"));
}

TEST_CASE("a failing composition is reduced to the parts that make it fail") {
  const Composition whole = parse_composition(
      "seed=3 layers=4 features=gqa,dropout,packing,clip mesh=fsdp:2,tensor:4/slices");
  const Composition least = shrunk(whole, [](const Composition& each) {
    return each.has("dropout") && each.devices() % 2 == 0 && !each.mesh.empty();
  });
  REQUIRE(least.text() == "seed=3 layers=1 features=dropout mesh=tensor:2");
}

// One composition by hand: TESSERA_COMPOSITION=17 or the text of one.
TEST_CASE("one", "[.]") {
  const char* const text = std::getenv("TESSERA_COMPOSITION");
  REQUIRE(text != nullptr);
  const Composition composition = parse_composition(text);
  const Verdict verdict = verdict_on(composition);
  fmt::print("{}\n{}\n", composition.text(), verdict.text());
  REQUIRE(!verdict.fails());
}

}  // namespace
}  // namespace tessera
