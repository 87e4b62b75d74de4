// SPDX-License-Identifier: Apache-2.0
// The hparams.toml of every experiment rebuilds exactly the same configuration.
#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("the configuration of every experiment reads back from its dump") {
  REQUIRE(load_plugins(find_plugins(plugin_path({}))).empty());
  int64_t experiments = 0;
  for (const ExperimentEntry& entry : registered_experiments()) {
    if (entry.plugin.find("/fixtures/") != std::string::npos) continue;
    ++experiments;
    std::vector<std::string> settings = {"task.train.seed=77"};
    if (entry.name == "hf.Pretrained")  // Reads its model from a directory.
      settings.push_back("path=" TESSERA_SOURCE_DIR "/tests/golden/hugging_face/llama");
    const ConfiguredExperiment configured = configure(entry, settings);
    const Tree before = configured.config_tree();
    ExperimentConfig config;
    from_tree(parse_toml(to_toml(before, entry.name), "hparams.toml"), config);
    const Tree after = to_tree(config);
    INFO(entry.name << "\n" << to_toml(before));
    REQUIRE(diff(before, after).empty());
    REQUIRE(same_value(before, after));
    REQUIRE(same_value(resolved(before), resolved(after)));
    REQUIRE(after.find("task")->find("train")->find("seed")->integer == 77);
  }
  REQUIRE(experiments >= 2);
}

}  // namespace
}  // namespace tessera
