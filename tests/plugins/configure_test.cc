// SPDX-License-Identifier: Apache-2.0
// Knobs and overrides: which names --set accepts, and the errors for unknown names. Every member of
// every experiment is a knob, and its hparams.toml rebuilds exactly the same configuration.
#include "plugins/configure.h"

#include <regex>

#include <fmt/ranges.h>

#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"
#include "inputs/synthetic_input.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/task/single_task.h"
#include "tests/plugins/fixtures.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

ExperimentEntry entry(const std::string& name) { return find_experiment(name, {fixture("good")}); }

std::string configure_error(const std::string& name, const std::string& given) {
  return error_of([&] { configure(entry(name), {given}); });
}

TEST_CASE("--set changes knobs before build and fields after build") {
  const ConfiguredExperiment configured =
      configure(entry("zoo.FastCat"), {"num_legs=6", "input.seq_len=16", "ici_mesh_shape=[1,2,1]"});
  const auto& input = configured.config.input.as<SyntheticInput::HParams>();
  REQUIRE(input.global_batch_size.get() == 6);
  REQUIRE(input.seq_len.get() == 16);
  REQUIRE(configured.config.mesh.ici_mesh_shape == std::vector<int64_t>{1, 2, 1});
  REQUIRE(configured.overrides == std::vector<std::string>{"input.seq_len=16"});
}

TEST_CASE("a variant inherits the knobs of its base and overrides their values") {
  const std::string knobs = describe(configure(entry("zoo.FastCat"), {"num_legs=3"}).knobs);
  REQUIRE_THAT(knobs, Catch::Contains("speed = 9.0 ") && Catch::Contains("ici_mesh_shape = []"));
  REQUIRE_THAT(knobs, Catch::Contains("# --set num_legs=3"));
}

TEST_CASE("knobs may be templates, and --set reaches their members") {
  const ConfiguredExperiment configured = configure(entry("zoo.Cat"), {"food.seq_len=5"});
  REQUIRE_THAT(describe(configured.knobs), Catch::Contains("food.seq_len = 5"));
}

TEST_CASE("validate() checks the knobs as they are set, before build()") {
  REQUIRE(configure_error("zoo.Cat", "num_legs=0") ==
          "zoo.Cat: speed=1.5 without legs, expected 0 [in --set num_legs=0]");
  // A variant inherits it.
  REQUIRE(configure_error("zoo.FastCat", "num_legs=0") ==
          "zoo.FastCat: speed=9 without legs, expected 0 [in --set num_legs=0]");
  REQUIRE(error_of([] { configure(entry("zoo.Cat"), {"num_legs=0", "speed=0"}); }) == "no error");
  REQUIRE(error_of([] {
            configure(entry("zoo.Cat"), {"speed=2", "num_legs=0"}, RecipeSize::kSmoke);
          }) ==
          "zoo.Cat: speed=2 without legs, expected 0 [in --smoke --set speed=2 --set num_legs=0]");
}

TEST_CASE("an unknown knob or field is an error that suggests the nearest name") {
  REQUIRE(configure_error("zoo.Cat", "num_leg=3") ==
          "--set num_leg=3: zoo.Cat has no knob or field 'num_leg'; did you mean 'num_legs'?");
  REQUIRE(configure_error("zoo.Cat", "inptu.seq_len=3") ==
          "--set inptu.seq_len=3: zoo.Cat has no knob or field 'inptu'; did you mean "
          "'input.seq_len'?");
  REQUIRE(configure_error("zoo.Cat", "seq_len=3") ==
          "--set seq_len=3: zoo.Cat has no knob or field 'seq_len'; did you mean 'input.seq_len'?");
  REQUIRE(configure_error("zoo.Cat", "wings=3") ==
          "--set wings=3: zoo.Cat has no knob or field 'wings'; --describe shows what it has");
  REQUIRE(configure_error("zoo.Cat", "input.seq_length=3") ==
          "no field 'input.seq_length' in SyntheticInput; did you mean 'input.seq_len'?");
  REQUIRE(configure_error("zoo.Cat", "num_legs=many") == "num_legs: got many, expected an integer");
  REQUIRE(configure_error("zoo.Cat", "num_legs") ==
          "--set num_legs: expected path=value, such as task.train.num_train_steps=100");
}

TEST_CASE("a stored configuration is the run's, and --set changes its fields") {
  const TemporaryDirectory folder;
  const ConfiguredExperiment run = configure(entry("zoo.FastCat"), {"num_legs=6"});
  write_file_atomically(folder / "hparams.toml", to_toml(run.config_tree(), "zoo.FastCat"));
  for (const auto& path : {folder.path(), folder / "hparams.toml"}) {
    const StoredConfig stored = read_config(path);
    REQUIRE(stored.experiment == "zoo.FastCat");
    const ConfiguredExperiment again = configure(entry(stored.experiment), stored, {});
    REQUIRE(same_value(to_tree(again.config), to_tree(run.config)));
    const ConfiguredExperiment changed =
        configure(entry(stored.experiment), stored, {"input.seq_len=16"});
    REQUIRE(changed.config.input.as<SyntheticInput::HParams>().seq_len.get() == 16);
    const std::string origins = describe(changed.config_tree());
    REQUIRE_THAT(origins, Catch::Contains("# --set input.seq_len=16") &&
                              Catch::Contains("# " + (folder / "hparams.toml").string()));
  }
  const auto error = [&](const std::string& given) {
    return error_of([&] { configure(entry("zoo.FastCat"), read_config(folder.path()), {given}); });
  };
  REQUIRE_THAT(error("num_legs=3"),
               Catch::StartsWith("--set num_legs=3: 'num_legs' is a knob of zoo.FastCat, which has "
                                 "no effect on the configuration in "));
  REQUIRE_THAT(error("inptu.seq_len=3"), Catch::Contains("did you mean 'input.seq_len'?"));
}

TEST_CASE("a file that is no stored configuration is an error that names it") {
  const TemporaryDirectory folder;
  const auto error = [&](const std::string& name) {
    return error_of([&] { read_config(folder / name); });
  };
  REQUIRE_THAT(error("absent.toml"),
               Catch::Contains("absent.toml does not exist; expected a run's directory or its"));
  REQUIRE_THAT(error(""), Catch::Contains("hparams.toml does not exist"));
  write_bytes(folder / "char_lm/hparams.toml", "");
  REQUIRE_THAT(error("char_ml"), Catch::Contains("did you mean 'char_lm'?"));
  write_file_atomically(folder / "bare.toml", "[mesh]\n");
  REQUIRE_THAT(error("bare.toml"),
               Catch::Contains("the first line of ") &&
                   Catch::Contains("is '[mesh]', expected the experiment's name, such as"));
  write_file_atomically(folder / "damaged.toml", "# zoo.FastCat\n[mesh\n");
  REQUIRE_THAT(
      error_of([&] { configure(entry("zoo.FastCat"), read_config(folder / "damaged.toml"), {}); }),
      Catch::Contains("damaged.toml"));
}

TEST_CASE("an unregistered class is rejected before the run, with the line to add") {
  REQUIRE(
      configure_error("farm.Unregistered", "num_layers=2") ==
      "--set num_layers=2: farm.Unregistered has no knob or field 'num_layers'; --describe shows "
      "what it has");
  REQUIRE(
      configure_error("farm.Unregistered", "input.seq_len=4") ==
      "tests/plugins/fixtures/farm.cc:55: eval.datasets.barn.score_metrics.moo: "
      "tessera::farm::Moo is not registered, so its name in hparams.toml and --set would not be "
      "known; add to its .cc file: const tessera::TemplateRegistrar<tessera::ScoreMetric, "
      "tessera::farm::Moo> kRegister;");
}

TEST_CASE("a knob missing from FIELDS is rejected before the run") {
  REQUIRE_THAT(configure_error("farm.Omitting", "listed=2"),
               Catch::Contains("a member that its FIELDS does not list, the next after 'listed'"));
}

TEST_CASE("every value set by an experiment is attributed to a line of the experiment") {
  const std::string text = describe(configure(entry("zoo.FastCat"), {}).config_tree());
  REQUIRE_THAT(text, Catch::Contains("input = SyntheticInput") &&
                         Catch::Contains("# tests/plugins/fixtures/zoo.cc:22\n"));
  for (const char* name : {"quickstart.SourceLm", "quiz.CopyQuiz", "c4.Spmd1B"}) {
    const ExperimentEntry ours = find_experiment(name, plugin_path({}));
    const ConfiguredExperiment configured = configure(ours, {});
    for (const std::string& all :
         {describe(configured.knobs), describe(configured.config_tree())}) {
      INFO(name << "\n" << all);
      REQUIRE(all.find("# /") == std::string::npos);
      REQUIRE(all.find("# experiment\n") == std::string::npos);
    }
  }
}

TEST_CASE("an unused mesh shape or one of wrong length is an error that says how to fix it") {
  const std::string unused = configure_error("zoo.Grid", "ici_mesh_shape=[2,3]");
  REQUIRE(unused ==
          "ici_mesh_shape=[2,3] has no effect: zoo.Grid builds a mesh with its own axes (rows, "
          "columns) and ignores this knob; set their sizes with --set mesh.ici_mesh_shape=[2,3]");
  REQUIRE_THAT(configure_error("zoo.Grid", "dcn_mesh_shape=[2,1,1]"),
               Catch::EndsWith("--set mesh.dcn_mesh_shape=[2,1]"));
  REQUIRE(configure_error("zoo.Cat", "ici_mesh_shape=[1,2]") ==
          "mesh.ici_mesh_shape has 2 sizes, expected one for each of the axes replica, data, mdl");
  // The suggested fix works.
  const std::string advice = unused.substr(unused.rfind(' ') + 1);
  REQUIRE(configure(entry("zoo.Grid"), {advice}).config.mesh.ici_mesh_shape ==
          std::vector<int64_t>{2, 3});
  REQUIRE(configure(entry("zoo.Cat"), {"ici_mesh_shape=[]"}).config.mesh.ici_mesh_shape.empty());
}

ConfiguredExperiment smoke(const ExperimentEntry& entry, const std::vector<std::string>& sets) {
  return configure(entry, sets, RecipeSize::kSmoke);
}

TEST_CASE("--smoke changes knobs before --set, and both are cited") {
  const ExperimentEntry herd = entry("zoo.Herd");
  REQUIRE(herd.has_shrink);
  const ConfiguredExperiment configured = smoke(herd, {"num_legs=3"});
  REQUIRE(configured.config.mesh.ici_mesh_shape == std::vector<int64_t>{1, 2, 2});
  REQUIRE(configured.config.mesh.dcn_mesh_shape == std::vector<int64_t>{2, 1, 1});
  REQUIRE(configured.config.input.as<SyntheticInput::HParams>().global_batch_size.get() == 3);
  const std::string knobs = describe(configured.knobs);
  INFO(knobs);
  REQUIRE(std::regex_search(knobs, std::regex("num_legs = 3 +# --set num_legs=3\n")));
  REQUIRE(std::regex_search(knobs, std::regex("num_animals = 2 +# --smoke\n")));
  REQUIRE(std::regex_search(knobs, std::regex("ici_mesh_shape = \\[1, 2, 2\\] +# --smoke\n")));
  REQUIRE(std::regex_search(knobs, std::regex("speed = 1.5 +# default\n")));
  // A mesh from --set is the user's, even if it equals that of the experiment.
  REQUIRE(smoke(herd, {"ici_mesh_shape=[1,8,4]"}).config.mesh.ici_mesh_shape ==
          std::vector<int64_t>{1, 8, 4});
}

TEST_CASE("--smoke limits evaluations, and steps by the knob or else by the field, before --set") {
  const std::string path = "task.train.num_train_steps";
  const std::string batches = "task.train.eval_loop_num_batches=";
  const auto steps = [&](const std::string& name, const std::vector<std::string>& sets) {
    return smoke(entry(name), sets).config.task.as<SingleTask::HParams>().train.num_train_steps;
  };
  REQUIRE(steps("zoo.Herd", {}) == kSmokeSteps);
  REQUIRE(steps("zoo.Herd", {path + "=7"}) == 7);
  const ConfiguredExperiment herd = smoke(entry("zoo.Herd"), {});
  REQUIRE(herd.overrides ==
          std::vector<std::string>{"--smoke " + batches + "16", "--smoke " + path + "=5"});
  REQUIRE(std::regex_search(describe(herd.config_tree()),
                            std::regex("num_train_steps = 5 +# --smoke; at least 0\n")));
  const ExperimentEntry lm = find_experiment("quickstart.SourceLm", plugin_path({}));
  const ConfiguredExperiment small = smoke(lm, {});
  const auto& train = small.config.task.as<SingleTask::HParams>().train;
  REQUIRE(train.num_train_steps == kSmokeSteps);
  REQUIRE(train.eval_loop_num_batches == 16);
  REQUIRE(small.overrides == std::vector<std::string>{"--smoke " + batches + "16"});
  const ConfiguredExperiment whole = smoke(lm, {batches + "-1"});
  REQUIRE(whole.config.task.as<SingleTask::HParams>().train.eval_loop_num_batches == -1);
}

TEST_CASE("an experiment without shrink() gets a small mesh, also with its own axes") {
  REQUIRE_FALSE(entry("zoo.Cat").has_shrink);
  REQUIRE_FALSE(entry("zoo.FastCat").has_shrink);
  REQUIRE(smoke(entry("zoo.Cat"), {}).config.mesh.ici_mesh_shape.empty());
  REQUIRE(smoke(entry("zoo.Grid"), {}).config.mesh.axis_names.size() == 2);
  REQUIRE_THAT(error_of([] { smoke(entry("zoo.Grid"), {"ici_mesh_shape=[2,3]"}); }),
               Catch::StartsWith("ici_mesh_shape=[2,3] has no effect"));
}

TEST_CASE("all unset required fields are reported with their paths") {
  REQUIRE(configure_error("farm.Forgetful", "listed=2") ==
          "farm.Forgetful: 2 required fields are not set: input.global_batch_size, input.seq_len; "
          "set them in the experiment or with --set");
}

std::string knob_error(const std::string& name) {
  const ExperimentEntry entry = find_experiment(name, {fixture("good")});
  return error_of([&] { check_knobs(entry); });
}

TEST_CASE("an experiment with a member missing from FIELDS is rejected") {
  REQUIRE(knob_error("farm.Omitting") ==
          "tests/plugins/fixtures/farm.cc:32: farm.Omitting has a member that its FIELDS does not "
          "list, the next after 'listed'; list every member, or --set and hparams.toml miss it");
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

TEST_CASE("every bundled experiment has the knob strategy, which sets its rules and mesh axes") {
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
    const ExperimentConfig config = configure(entry, sets).config;
    const RulesConfig& rules = config.rules;
    const RulesConfig expected = strategy_rules(Strategy::kFullyShardedSequence);
    REQUIRE(rules.weights == expected.weights);
    REQUIRE(rules.activations == expected.activations);
    sets[0] = "strategy=fsdp_context";
    const std::vector<int64_t> sizes(config.mesh.axis_names.size() + 1, 1);
    for (const char* shape : {"mesh.ici_mesh_shape", "mesh.dcn_mesh_shape"})
      sets.push_back(fmt::format("{}=[{}]", shape, fmt::join(sizes, ",")));
    const std::vector<std::string> axes = configure(entry, sets).config.mesh.axis_names;
    REQUIRE(std::ranges::count(axes, "ctx") == 1);
  }
  REQUIRE(ours >= 10);
}

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
