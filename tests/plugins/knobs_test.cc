// SPDX-License-Identifier: Apache-2.0
// Every member of every experiment is in its FIELDS, and every experiment has the common knobs.
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string knob_error(const std::string& name) {
  const ExperimentEntry entry = find_experiment(name, {fixture("good")});
  return error_of([&] { check_knobs(entry); });
}

TEST_CASE("an experiment with a member missing from FIELDS is rejected") {
  REQUIRE(knob_error("farm.Omitting") ==
          "tests/plugins/fixtures/farm.cc:32: farm.Omitting has a member that its FIELDS does not "
          "list, the next after 'listed'; list every member, or --set and hparams.toml do not know "
          "it");
  REQUIRE(knob_error("zoo.FastCat") == "no error");
}

TEST_CASE("no bundled experiment has a member missing from FIELDS") {
  const auto problems = load_plugins(find_plugins(plugin_path({})));
  REQUIRE(problems == std::vector<std::string>{});
  int64_t ours = 0;
  for (const ExperimentEntry& entry : registered_experiments()) {
    if (entry.plugin.find("/fixtures/") != std::string::npos) continue;
    ++ours;
    REQUIRE_NOTHROW(check_knobs(entry));
  }
  REQUIRE(ours >= 2);
}

TEST_CASE("every bundled experiment has the knob strategy, which sets its rules") {
  load_plugins(find_plugins(plugin_path({})));
  int64_t ours = 0;
  for (const ExperimentEntry& entry : registered_experiments()) {
    if (entry.plugin.find("/fixtures/") != std::string::npos) continue;
    INFO(entry.name);
    ++ours;
    std::vector<std::string> sets = {"strategy=fsdp_sequence"};
    if (entry.name == "hf.Pretrained")
      sets.insert(sets.end(),
                  {std::string("path=") + TESSERA_SOURCE_DIR + "/tests/golden/hugging_face/gpt2",
                   "seq_len=16"});
    if (entry.name == "quickstart.CharLm") sets.push_back("input.path=text.txt");
    const RulesConfig rules = configure(entry, sets).config.rules;
    const RulesConfig expected = strategy_rules(Strategy::kFullyShardedSequence);
    REQUIRE(rules.weights == expected.weights);
    REQUIRE(rules.activations == expected.activations);
  }
  REQUIRE(ours >= 10);
}

}  // namespace
}  // namespace tessera
