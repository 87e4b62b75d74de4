// SPDX-License-Identifier: Apache-2.0
// The campaign of mutants: twelve compositions, a sample of the mutants of each, and the table of
// what became of them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/mutants/judgement.h"

namespace tessera {

// Compositions as text: FSDP, tensor and sequence parallelism, rings, all-to-all, experts,
// pipelines, two slices, and products of these.
const std::vector<std::string>& mutant_recipes();

// Returns `count` of the mutants, by the hashes of their texts, and at least `of_each_kind` of each
// kind if there are as many.
std::vector<Mutant> sampled(const std::vector<Mutant>& all, int64_t count, int64_t of_each_kind);

// The numbers of mutants by kind and outcome.
class MutantTable {
 public:
  void add(const Mutant& mutant, const Judgement& judgement);
  int64_t total() const;
  int64_t total(Outcome outcome) const;
  // Rows of kinds, a last row of all, and the reasons of the equivalent ones with their numbers.
  std::string text() const;

 private:
  using Row = std::array<int64_t, 4>;  // By outcome.
  std::map<std::string, Row> rows_;
  std::map<std::string, int64_t> reasons_;
};

// How many mutants of a recipe are judged, and by how many draws.
struct CampaignSize {
  int64_t count = 0;
  int64_t of_each_kind = 0;
  int64_t draws = kDraws;
};

// Judges mutants of a recipe; calls on_survivor with the text of each that survived.
void judge_recipe(const std::string& recipe, const CampaignSize& size, MutantTable& table,
                  const std::function<void(const std::string& text)>& on_survivor);

// The command that judges one mutant.
std::string command_of(const std::string& recipe, const Mutant& mutant);

}  // namespace tessera
