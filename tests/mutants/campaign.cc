// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/campaign.h"

#include <algorithm>
#include <span>

#include "core/base/crc32c.h"

namespace tessera {
namespace {

uint32_t hash_of(const Mutant& mutant) {
  const std::string text = mutant.text();
  return crc32c(std::as_bytes(std::span(text)));
}

std::string row_text(const std::string& name, const std::array<int64_t, 4>& row) {
  return fmt::format("{:18}{:>9}{:>9}{:>12}{:>10}{:>9}\n", name, row[0], row[1], row[2], row[3],
                     row[0] + row[1] + row[2] + row[3]);
}

}  // namespace

const std::vector<std::string>& mutant_recipes() {
  static const std::vector<std::string> kRecipes = {
      "seed=1 layers=1 features=gqa,clip mesh=fsdp:2,tensor:2",
      "seed=2 layers=1 features=biases,packing mesh=sequence:2",
      "seed=3 layers=1 features=packing,save_nothing,repeated mesh=fsdp_ring:4",
      "seed=4 layers=1 features=padding,microbatches mesh=context:2,fsdp:2",
      "seed=5 layers=1 features=experts,shared_experts,aux_losses,padding mesh=experts:4",
      "seed=6 layers=2 features=microbatches,repeated,clip mesh=fsdp:2 stages=2:1f1b",
      "seed=7 layers=4 features=packing,microbatches,repeated mesh=tensor:2 stages=2:interleaved",
      "seed=8 layers=2 features=untied,microbatches,repeated mesh=ring:4 stages=2:zero_bubble",
      "seed=9 layers=1 features=z_loss,token_weights mesh=fsdp:4/slices,vocab:2",
      "seed=10 layers=1 features=dropout,padding,microbatches,clip_each "
      "mesh=replica:2,fsdp_width:2,tensor:2",
      "seed=11 layers=1 features=mqa,qk_norm,soft_caps,loss_chunks,clip mesh=ring:4,tensor:2",
      "seed=12 layers=1 features=capacity,padding,microbatches,adafactor mesh=experts:2,tensor:2",
  };
  return kRecipes;
}

std::vector<Mutant> sampled(const std::vector<Mutant>& all, int64_t count, int64_t of_each_kind) {
  std::vector<const Mutant*> order;
  for (const Mutant& each : all) order.push_back(&each);
  std::ranges::sort(order, {}, [](const Mutant* each) { return hash_of(*each); });
  std::map<std::string, int64_t> taken;
  std::vector<const Mutant*> chosen, others;
  for (const Mutant* each : order)
    (taken[each->kind]++ < of_each_kind ? chosen : others).push_back(each);
  for (const Mutant* each : others)
    if (std::ssize(chosen) < count) chosen.push_back(each);
  std::vector<Mutant> result;
  for (const Mutant* each : chosen)
    if (std::ssize(result) < count) result.push_back(*each);
  return result;
}

void MutantTable::add(const Mutant& mutant, const Judgement& judgement) {
  ++rows_[mutant.kind][static_cast<size_t>(judgement.outcome)];
  if (judgement.outcome == Outcome::kEquivalent) ++reasons_[judgement.text];
}

int64_t MutantTable::total(Outcome outcome) const {
  int64_t total = 0;
  for (const auto& [kind, row] : rows_) total += row[static_cast<size_t>(outcome)];
  return total;
}

int64_t MutantTable::total() const {
  using enum Outcome;
  return total(kRefused) + total(kCaught) + total(kEquivalent) + total(kSurvived);
}

std::string MutantTable::text() const {
  using enum Outcome;
  std::string text = fmt::format("{:18}{:>9}{:>9}{:>12}{:>10}{:>9}\n", "kind", "refused", "caught",
                                 "equivalent", "survived", "all");
  for (const auto& [kind, row] : rows_) text += row_text(kind, row);
  text += row_text("all", {total(kRefused), total(kCaught), total(kEquivalent), total(kSurvived)});
  text += "\nEquivalent:\n";
  for (const auto& [reason, count] : reasons_) text += fmt::format("{:>4}  {}\n", count, reason);
  return text;
}

void judge_recipe(const std::string& recipe, const CampaignSize& size, MutantTable& table,
                  const std::function<void(const std::string& text)>& on_survivor) {
  const LoweredStep step(parse_composition(recipe));
  Judge judge(step, size.draws);
  for (const Mutant& mutant : sampled(all_mutants(step), size.count, size.of_each_kind)) {
    const Judgement judgement = judge.on(mutant);
    table.add(mutant, judgement);
    if (judgement.outcome == Outcome::kSurvived)
      on_survivor(fmt::format("{} at {}: {}\n  {}", mutant.kind, mutant.op, judgement.text,
                              command_of(recipe, mutant)));
  }
}

std::string command_of(const std::string& recipe, const Mutant& mutant) {
  return fmt::format(
      "TESSERA_COMPOSITION='{}' TESSERA_MUTANT='{}' build/release/bin/test_mutants \"one mutant\"",
      recipe, mutant.text());
}

}  // namespace tessera
