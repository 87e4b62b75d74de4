// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <cstdlib>

#include "core/base/crc32c.h"
#include "core/graph/op.h"
#include "core/graph/text.h"
#include "tests/mutants/judgement.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("scratch") {
  const std::string text = std::getenv("C");
  const size_t most = std::stoul(std::getenv("N"));
  LoweredStep step(parse_composition(text));
  std::vector<Mutant> mutants = all_mutants(step);
  fmt::print("{} mutants\n", mutants.size());
  std::map<std::string, std::vector<Mutant>> by;
  for (auto& m : mutants) by[m.kind].push_back(m);
  Judge judge(step);
  for (auto& [kind, list] : by) {
    std::ranges::sort(list, {}, [](const Mutant& m) { const std::string t = m.text(); return crc32c(std::as_bytes(std::span(t))); });
    for (size_t i = 0; i < list.size() && i < most; ++i) {
      fmt::print("{} {} -> ", list[i].op, list[i].text()); std::fflush(stdout);
      auto j = judge.on(list[i]);
      fmt::print("{}: {}\n", outcome_name(j.outcome), j.text); std::fflush(stdout);
    }
  }
  if (std::getenv("D")) fmt::print("{}\n", graph_text(step.graphs[std::stoul(std::getenv("D"))].graph));
}

}  // namespace
}  // namespace tessera
