// SPDX-License-Identifier: Apache-2.0
// Compositions of features and meshes give one device's numbers: to 1e-12 in f64, and within
// rounding by the kernels of the CPU.
#include "tests/composition/composition.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

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

// The largest errors of many compositions, by the kind of number that has them, and what was
// refused.
struct Summary {
  int64_t ran = 0;
  std::map<std::string, std::vector<uint32_t>> refused;              // Draws by message.
  std::map<std::string, std::pair<double, uint32_t>> f64, standard;  // With the draw.

  void add(uint32_t number, const Verdict& verdict) {
    if (verdict.refusal) {
      refused[*verdict.refusal].push_back(number);
      return;
    }
    ++ran;
    const auto keep = [&](const Difference& difference, auto& largest) {
      const size_t colon = difference.name.find(": ");
      const std::string name =
          colon == std::string::npos ? difference.name : difference.name.substr(colon + 2);
      auto& kept = largest[name.substr(0, name.rfind('/'))];
      kept = std::max(kept, {difference.error, number});
    };
    keep(verdict.f64, f64);
    keep(verdict.standard, standard);
  }

  void print() const {
    for (const auto& [message, numbers] : refused)
      fmt::print("refused {} times, such as draw {}: {}\n", numbers.size(), numbers.front(),
                 message);
    const auto print_largest = [](std::string_view numerics, const auto& largest) {
      for (const auto& [name, kept] : largest)
        if (kept.first > 0.0)
          fmt::print("largest error in {} of {}: {:.1e} (draw {})\n", numerics, name, kept.first,
                     kept.second);
    };
    print_largest("f64", f64);
    print_largest("standard", standard);
  }
};

void report_failure(uint32_t number, const Verdict& verdict) {
  const Composition composition = drawn_composition(number);
  const Composition least =
      shrunk(composition, [](const Composition& each) { return verdict_on(each).fails(); });
  FAIL_CHECK("draw " << number << ": " << verdict.text() << "\n  " << command_of(composition)
                     << "\n  smallest: " << verdict_on(least).text() << "\n  "
                     << command_of(least));
}

enum class Tier { kFast, kFull };

// To save time, the fast tier runs three of four compositions in f64 only, where errors are not
// hidden by rounding.
void run_draws(Tier tier, uint32_t first, uint32_t count, int64_t least) {
  Summary summary;
  for (uint32_t number = first; number < first + count; ++number) {
    const bool is_short = tier == Tier::kFast && number % 4 != 0;
    const Verdict verdict =
        verdict_on(drawn_composition(number), is_short ? Compared::kF64 : Compared::kBoth);
    summary.add(number, verdict);
    if (verdict.fails()) report_failure(number, verdict);
  }
  summary.print();
  fmt::print("{} compositions of {} ran\n", summary.ran, count);
  REQUIRE(summary.ran >= least);
}

TEST_CASE("forty compositions of features and meshes give one device's numbers") {
  run_draws(Tier::kFast, 1, 40, 20);
}

TEST_CASE("two thousand compositions of features and meshes give one device's numbers", "[full]") {
  run_draws(Tier::kFull, 1000, 2000, 1000);
}

// In a pipeline the last stage embeds further tokens, also where that is recomputed for a gradient.
TEST_CASE("predictions of further tokens are those of one device") {
  for (const std::string model :
       {"seed=3 layers=2 features=mtp,packing,token_weights mesh=sequence:2,fsdp:2",
        "seed=4 layers=2 features=mtp,packing,untied,loss_chunks mesh=ring:2,tensor:2",
        "seed=112 layers=2 features=mtp,uneven_microbatches,token_weights,padding mesh=context:2",
        "seed=11 layers=4 features=mtp,repeated,save_nothing mesh=fsdp:2 stages=2:1f1b",
        "seed=12 layers=4 features=mtp,repeated,untied,save_dots,packing stages=2:zero_bubble"}) {
    const Verdict verdict = verdict_on(parse_composition(model), Compared::kF64);
    INFO(model << ": " << verdict.text());
    REQUIRE(!verdict.refusal);
    REQUIRE(!verdict.fails());
  }
}

TEST_CASE("several losses and noise are those of one device, and noise refuses unequal pieces") {
  const auto verdict = [](const std::string& model) {
    return verdict_on(parse_composition(model), Compared::kF64);
  };
  for (const std::string model :
       {"seed=3 layers=2 features=experts,losses,token_weights,microbatches mesh=fsdp:2,tensor:2",
        "seed=5 layers=4 features=experts,losses,repeated,noise mesh=fsdp:2 stages=2:1f1b",
        "seed=7 layers=4 features=noise,step_window,focal,repeated stages=2:zero_bubble"}) {
    const Verdict found = verdict(model);
    INFO(model << ": " << found.text());
    REQUIRE(!found.refusal);
    REQUIRE(!found.fails());
  }
  REQUIRE_THAT(*verdict("seed=11 layers=3 features=noise,repeated stages=2:1f1b").refusal,
               Catch::Contains("variational_noise: the pieces of these layers"));
}

TEST_CASE("the balancing biases of stacked layers are those of each layer alone") {
  const auto biases = [](const std::string& stack, const std::vector<std::string>& layers) {
    const Composition composition =
        parse_composition("seed=5 layers=3 features=experts,router_bias" + stack + " mesh=");
    const RunNumbers numbers =
        run_steps(traced(model_of(composition, Place::kOneDevice)), Numerics::kF64);
    std::vector<double> all;
    for (const std::string& layer : layers) {
      const auto& each = numbers.at("step 1: lm.transformer.x_layers" + layer + ".ffn.router.bias");
      all.insert(all.end(), each.begin(), each.end());
    }
    return all;
  };
  const std::vector<double> stacked = biases(",repeated", {"[]"});
  REQUIRE(stacked == biases("", {"[0]", "[1]", "[2]"}));
  REQUIRE(std::ranges::any_of(stacked, [](double bias) { return bias != 0.0; }));
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

// For tests/mutants/judge_source.py: what becomes of each of the draws TESSERA_DRAWS=1-30, in f64.
TEST_CASE("the outcomes of some draws") {
  const char* const variable = std::getenv("TESSERA_DRAWS");
  const std::string text = variable != nullptr ? variable : "1-1";
  const uint32_t first = static_cast<uint32_t>(std::stoul(text)),
                 last = static_cast<uint32_t>(std::stoul(text.substr(text.find('-') + 1)));
  for (uint32_t number = first; number <= last; ++number) {
    const Verdict verdict = verdict_on(drawn_composition(number), Compared::kF64);
    const std::string_view outcome = verdict.refusal   ? "refused"
                                     : verdict.fails() ? "failed"
                                                       : "ran";
    fmt::print("draw {} {} {:08x} {}\n", number, outcome, verdict.bits, verdict.text());
    std::fflush(stdout);
  }
}

// By hand: TESSERA_COMPOSITION=17, the text of a composition, or draws such as 1000-1499.
TEST_CASE("one composition") {
  const char* const variable = std::getenv("TESSERA_COMPOSITION");
  const std::string text = variable != nullptr ? variable : "seed=1 features=gqa,clip mesh=fsdp:2";
  if (const size_t dash = text.find('-'); dash != std::string::npos) {
    const int first = std::stoi(text), last = std::stoi(text.substr(dash + 1));
    return run_draws(Tier::kFull, static_cast<uint32_t>(first),
                     static_cast<uint32_t>(last - first + 1), 0);
  }
  const Composition composition = parse_composition(text);
  fmt::print("{}\n", composition.text());
  std::fflush(stdout);  // Before a crash.
  const Verdict verdict = verdict_on(composition);
  fmt::print("{}\n", verdict.text());
  REQUIRE(!verdict.fails());
}

}  // namespace
}  // namespace tessera
