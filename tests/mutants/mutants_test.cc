// SPDX-License-Identifier: Apache-2.0
// A lowered program with one change is refused by the verifier, caught by two training steps in
// f64, or computes the same for a known reason.
#include <cstdlib>

#include "core/graph/verify.h"
#include "tests/mutants/campaign.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"

namespace tessera {
namespace {

std::string environment_or(const char* name, const char* otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : otherwise;
}

MutantTable table_of(const std::vector<std::string>& recipes, const CampaignSize& size) {
  MutantTable table;
  for (const std::string& recipe : recipes)
    judge_recipe(recipe, size, table,
                 [](const std::string& text) { FAIL_CHECK("survived: " << text); });
  return table;
}

TEST_CASE("no mutant of a small sample survives") {
  const MutantTable table = table_of(mutant_recipes(), {.count = 3, .draws = 2});
  fmt::print("{}", table.text());
  REQUIRE(table.total() == 36);
}

TEST_CASE("no mutant of twelve compositions survives", "[full]") {
  const MutantTable table = table_of(mutant_recipes(), {.count = 130, .of_each_kind = 2});
  const std::string text = table.text();
  fmt::print("{}", text);
  REQUIRE(table.total() >= 1000);
  REQUIRE(table.total(Outcome::kEquivalent) * 20 <= table.total());
  REQUIRE(golden_difference("mutants.txt", text) == "");
}

TEST_CASE("the programs without a change give the numbers of the campaign") {
  const LoweredStep step(parse_composition(mutant_recipes().front()));
  std::vector<Graph> graphs;
  for (const DeviceGraph& each : step.graphs) graphs.push_back(each.graph);
  for (const Graph& graph : graphs) verify(graph, Mesh());
  LoweredRun one(step, graphs), other(step, graphs);
  const RunNumbers first = one.draw(0), second = one.draw(1);
  REQUIRE(first == other.draw(0));
  REQUIRE(difference(second, first).error > 1e-3);
  REQUIRE(first.contains("step 1: loss"));
  for (const auto& [name, values] : first) REQUIRE(!name.starts_with("copies that differ"));
  // The results of all four devices.
  REQUIRE(first.at("step 1: probe/loss") == std::vector(4, first.at("step 1: loss").front()));
}

TEST_CASE("a stage may not read a microbatch before it has received it") {
  const LoweredStep step(parse_composition(
      "seed=6 layers=2 features=microbatches,repeated mesh=fsdp:2 stages=2:1f1b"));
  int64_t refused = 0;
  for (const Mutant& mutant : all_mutants(step)) {
    if (mutant.how.find("microbatches of body") == std::string::npos) continue;
    const Judgement judgement = Judge(step).on(mutant);
    REQUIRE_THAT(judgement.text, Catch::Contains("before it is written"));
    REQUIRE(judgement.outcome == Outcome::kRefused);
    ++refused;
  }
  REQUIRE(refused > 0);
}

TEST_CASE("a mutant is found by its text, and a sample has some of each kind") {
  const LoweredStep step(parse_composition(mutant_recipes().front()));
  const std::vector<Mutant> all = all_mutants(step);
  REQUIRE(all.size() > 100);
  for (size_t i = 0; i < all.size(); i += 50)
    REQUIRE(parse_mutant(step, all[i].text()).text() == all[i].text());
  REQUIRE_THROWS_WITH(parse_mutant(step, "0:1|delete loss|all"), Catch::Contains("no mutant"));
  const std::vector<Mutant> few = sampled(all, 60, 2);
  REQUIRE(few.size() == 60);
  std::map<std::string, int64_t> kinds, of_all;
  for (const Mutant& each : few) ++kinds[each.kind];
  for (const Mutant& each : all) ++of_all[each.kind];
  for (const auto& [kind, count] : of_all) REQUIRE(kinds[kind] >= std::min<int64_t>(count, 2));
}

// By hand: TESSERA_MUTANTS=200 judges so many mutants of TESSERA_COMPOSITION.
TEST_CASE("some mutants of one composition") {
  const std::string recipe =
      environment_or("TESSERA_COMPOSITION", "seed=1 layers=1 features= mesh=tensor:2");
  const int64_t count = std::stol(environment_or("TESSERA_MUTANTS", "2"));
  const MutantTable table = table_of({recipe}, {.count = count, .of_each_kind = 2});
  fmt::print("{}\n{}", recipe, table.text());
}

// By hand: the variables of a survivor's command.
TEST_CASE("one mutant") {
  const std::string recipe =
      environment_or("TESSERA_COMPOSITION", mutant_recipes().front().c_str());
  const LoweredStep step(parse_composition(recipe));
  const std::string text = environment_or("TESSERA_MUTANT", "");
  const Mutant mutant = text.empty() ? all_mutants(step).front() : parse_mutant(step, text);
  const Judgement judgement = Judge(step).on(mutant);
  fmt::print("{}\n{}: {}\n", mutant.text(), outcome_name(judgement.outcome), judgement.text);
  REQUIRE(judgement.outcome != Outcome::kSurvived);
}

}  // namespace
}  // namespace tessera
