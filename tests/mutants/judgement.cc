// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/judgement.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/verify.h"

namespace tessera {
namespace {

std::vector<Graph> graphs_of(const LoweredStep& step) {
  std::vector<Graph> graphs;
  for (const DeviceGraph& each : step.graphs) graphs.push_back(each.graph);
  return graphs;
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRefused:
      return "refused";
    case Outcome::kCaught:
      return "caught";
    case Outcome::kEquivalent:
      return "equivalent";
    case Outcome::kSurvived:
      return "survived";
  }
  return "";
}

const RunNumbers& Judge::expected(int64_t draw) {
  if (!unchanged_) unchanged_ = std::make_unique<LoweredRun>(step_, graphs_of(step_));
  RunNumbers& numbers = expected_[static_cast<size_t>(draw)];
  if (numbers.empty()) numbers = unchanged_->draw(draw);
  return numbers;
}

Judgement Judge::on(const Mutant& mutant) {
  std::vector<Graph> graphs;
  try {
    graphs = mutated(step_, mutant);
    for (const Graph& graph : graphs) verify(graph, Mesh(), mutant.text());
  } catch (const Error& error) {
    return {Outcome::kRefused, error.what()};
  }
  Difference largest;
  bool is_equal = true;
  try {
    LoweredRun run(step_, graphs);
    for (int64_t draw = 0; draw < std::ssize(expected_); ++draw) {
      const RunNumbers got = run.draw(draw);
      const Difference apart = difference(got, expected(draw));
      if (apart.error > kCaughtAbove)
        return {Outcome::kCaught, fmt::format("{} differs by {:.1e}", apart.name, apart.error)};
      if (apart.error > largest.error) largest = apart;
      is_equal = is_equal && got == expected(draw);
    }
  } catch (const Error& error) {
    return {Outcome::kCaught, error.what()};
  }
  if (!is_equal)
    return {Outcome::kSurvived, fmt::format("{} differs by {:.1e}", largest.name, largest.error)};
  const std::string reason = reason_for(step_, mutant);
  return {reason.empty() ? Outcome::kSurvived : Outcome::kEquivalent,
          reason.empty() ? "all bits are equal, without a known reason" : reason};
}

}  // namespace tessera
