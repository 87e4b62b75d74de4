// SPDX-License-Identifier: Apache-2.0
// Compositions of features and meshes give one device's numbers: to 1e-12 in f64, and within
// rounding by the kernels of the CPU.
#include "tests/composition/composition.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include "core/base/error.h"
#include "tests/composition/trial.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string command_of(const Composition& composition) {
  return fmt::format(
      "TESSERA_COMPOSITION='{}' build/release/bin/test_composition \"one composition\"",
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

TEST_CASE("numbers that differ, lack or are not finite are a difference") {
  const RunNumbers expected = {{"step 0: loss", {2.0}}, {"step 0: lm.w", {3.0, 4.0}}};
  REQUIRE(difference(expected, expected).error == 0.0);
  RunNumbers got = expected;
  got["step 0: lm.w"][1] += 5e-6;
  REQUIRE(difference(got, expected).error == Approx(1e-6));
  REQUIRE(difference(got, expected).name == "step 0: lm.w");
  got["step 0: lm.w"][1] = std::nan("");
  REQUIRE(std::isinf(difference(got, expected).error));
  REQUIRE(std::isinf(difference(got, got).error));
  REQUIRE(std::isinf(difference({{"step 0: loss", {2.0}}}, expected).error));
}

// By hand: TESSERA_COMPOSITION=17, or the text of a composition.
TEST_CASE("one composition") {
  const char* const text = std::getenv("TESSERA_COMPOSITION");
  const Composition composition =
      parse_composition(text != nullptr ? text : "seed=1 features=gqa,clip mesh=fsdp:2,tensor:2");
  const Verdict verdict = verdict_on(composition);
  fmt::print("{}\n{}\n", composition.text(), verdict.text());
  REQUIRE(!verdict.fails());
}

}  // namespace
}  // namespace tessera
