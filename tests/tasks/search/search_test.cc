// SPDX-License-Identifier: Apache-2.0
// The search finds what planning every candidate finds, explains what it leaves out, and its result
// is a list of settings that gives the plan which it promises.
#include "tasks/search/search.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <fmt/ranges.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/planner/prediction.h"
#include "tasks/run/train/train_session.h"
#include "tasks/search/output.h"
#include "tasks/search/space.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/search/small_recipe.h"

namespace tessera {
namespace {

SearchResult search_small(const SearchOptions& options) {
  return search(small_configure(), SettingStyle::kFields, 1, options);
}

std::vector<std::vector<int64_t>> pairs(std::vector<std::vector<int64_t>> lists) { return lists; }

struct Planned {
  double seconds = 0.0;
  int64_t bytes = 0;
};

// Plans all candidates.
std::vector<Planned> plan_everything(const SearchOptions& options) {
  const Configure configure = small_configure();
  const Recipe recipe = read_recipe(configure({}), 1);
  const std::unique_ptr<Device> device = make_planned_device(options.hardware);
  const Space space(recipe, options.space);
  ProcessGroup alone;
  std::vector<Planned> plans;
  for (const Layout& layout : space.layouts())
    for (const Candidate& candidate : space.candidates(layout)) {
      const auto config = configure(settings_of(candidate, SettingStyle::kFields));
      try {
        const Session session(config, {.allocates = false}, {device.get()}, alone);
        const CompiledStep step = session.compiled_step();
        plans.push_back({predict(step, options.hardware).step_seconds, step.arena_bytes});
      } catch (const Error&) {
        // Refused, which the search reports.
      }
    }
  return plans;
}

TEST_CASE("the search finds what planning every candidate finds", "[full]") {
  SearchOptions options = small_options({2});
  const std::vector<Planned> everything = plan_everything(options);
  REQUIRE(everything.size() > 100);
  for (const int64_t memory : {1'000'000'000, 30'000'000})
    for (const SearchGoal goal : {SearchGoal::kTime, SearchGoal::kMemory, SearchGoal::kCost}) {
      options.hardware.memory.bytes = memory;
      options.goal = goal;
      CAPTURE(memory, enum_name(goal));
      const auto score_of = [&](double seconds, int64_t bytes) {
        return score(goal, options.hardware, 2, seconds, bytes);
      };
      double least = std::numeric_limits<double>::infinity();
      for (const auto& [seconds, bytes] : everything)
        if (bytes <= arena_room(options.hardware))
          least = std::min(least, score_of(seconds, bytes));
      const SearchResult found = search_small(options);
      REQUIRE(found.is_complete);
      REQUIRE(found.best);
      const PlannedCandidate& best = found.best_candidate();
      REQUIRE(score_of(best.seconds, best.bytes) <= 1.01 * least);
    }
}

TEST_CASE("a search without time limit finds the same again") {
  const SearchOptions options = small_options({4});
  const SearchResult one = search_small(options), other = search_small(options);
  REQUIRE(one.candidates.size() == other.candidates.size());
  for (size_t i = 0; i < one.candidates.size(); ++i)
    REQUIRE(one.candidates[i].candidate.text() == other.candidates[i].candidate.text());
  REQUIRE(one.best == other.best);
  REQUIRE(one.frontier == other.frontier);
}

TEST_CASE("the settings of a candidate give its mesh, rules and policy, and keep model and batch",
          "[full]") {
  const SearchOptions options = small_options({4});
  const SearchResult result = search_small(options);
  REQUIRE(result.best);
  const Candidate& best = result.candidates[*result.best].candidate;
  const ExperimentConfig config = small_configure()(settings_of(best, SettingStyle::kFields));
  REQUIRE(planned_mesh(config.mesh, 1) == best.layout.mesh());
  REQUIRE(config.rules.weights == best.layout.rules.weights);
  const ExperimentConfig given = small_recipe();
  REQUIRE(same_value(to_tree(config.input), to_tree(given.input)));
  const auto& task = config.task.as<SingleTask::HParams>();
  REQUIRE(task.train.remat_policy == best.remat_policy);
  REQUIRE(task.train.num_microbatches == best.microbatches);
  REQUIRE(same_value(to_tree(task.model), to_tree(given.task.as<SingleTask::HParams>().model)));
}

TEST_CASE("the frontier has the plans that no other one beats in time and memory") {
  const auto planned = [](double seconds, int64_t bytes) {
    PlannedCandidate one;
    one.seconds = seconds, one.bytes = bytes;
    return one;
  };
  std::vector<PlannedCandidate> list = {planned(3, 10), planned(1, 90), planned(2, 50),
                                        planned(2, 40), planned(4, 10), planned(0.5, 200)};
  list.push_back(planned(0.1, 1));
  list.back().refusal = "it does not fit the mesh";
  REQUIRE(frontier_of(list, 100) == std::vector<size_t>{1, 3, 0});
}

TEST_CASE("refusals that differ in numbers only are one group") {
  SearchResult result;
  for (const char* why : {"seq=128 by mdl=3", "seq=128 by mdl=5", "no such rule"})
    result.candidates.push_back({{.refusal = why}, {}});
  const std::vector<LeftOut> groups = refusal_groups(result);
  REQUIRE(groups.size() == 2);
  REQUIRE((groups[0].count == 2 && groups[0].reason == "seq=128 by mdl=3"));
  REQUIRE((groups[1].count == 1 && groups[1].reason == "no such rule"));
}

TEST_CASE("where nothing fits, the message names what needs least memory") {
  const SearchOptions options = small_options({2}, 1000);
  const SearchResult result = search_small(options);
  REQUIRE_FALSE(result.best);
  REQUIRE(result.frontier.empty());
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const PlannedCandidate& one : result.candidates)
    if (one.is_planned()) least = std::min(least, one.bytes);
  const std::string message = nothing_fits(result, options);
  REQUIRE_THAT(message, Catch::Contains("no candidate fits 980 B") &&
                            Catch::Contains("needs " + std::to_string(least / 1024 / 1024)));
}

TEST_CASE("a search without time says that it did not end") {
  SearchOptions options = small_options({2});
  options.seconds = 0.0;
  const SearchResult result = search_small(options);
  REQUIRE_FALSE(result.is_complete);
  REQUIRE_THAT(
      search_text(result, options, SettingStyle::kFields, {}),
      Catch::Contains("The search ended after 0 s") && Catch::Contains("--search_seconds"));
}

TEST_CASE("of several numbers of devices cost takes the cheapest, and time the fastest") {
  SearchOptions options = small_options({1, 3});
  const SearchResult fastest = search_small(options);
  REQUIRE(fastest.best_of_devices.size() == 2);
  options.goal = SearchGoal::kCost;
  const SearchResult cheapest = search_small(options);
  REQUIRE(cheapest.best_of_devices.size() == 2);
  const auto best = [](const SearchResult& result) { return result.candidates[*result.best]; };
  REQUIRE(best(fastest).seconds <= best(cheapest).seconds);
  const auto cost = [](const PlannedCandidate& one) {
    return one.seconds * static_cast<double>(one.devices());
  };
  REQUIRE(cost(best(cheapest)) <= cost(best(fastest)));
}

TEST_CASE("what is printed fits 100 columns, and the JSON has the best, the frontier and counts",
          "[full]") {
  SearchOptions options = small_options({16});
  options.space.slice = 2;
  const SearchResult result = search_small(options);
  const std::string text =
      search_text(result, options, SettingStyle::kFields, {"family.Small", "./runexp", "x.toml"});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    size_t columns = 0;  // "×" has two bytes.
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    REQUIRE(columns <= 100);
  }
  REQUIRE_THAT(text, Catch::Contains("recipe") && Catch::Contains("--set_file=x.toml") &&
                         Catch::Contains("fast links among 2"));
  const Json json = parse_json(search_json(result, options, SettingStyle::kFields), "search");
  REQUIRE(json.at("best").at("step_seconds").as_number() ==
          result.candidates[*result.best].seconds);
  REQUIRE(json.at("frontier").as_array().size() == result.frontier.size());
  REQUIRE(json.at("counts").at("planned").as_integer() == counts_of(result, options).planned);
  REQUIRE(json.at("complete").as_bool());
  REQUIRE_THAT(text,
               Catch::Contains("heads=12 (lm.transformer.x_layers[].attention.query) cannot be "
                               "divided among mdl=8, 16;") &&
                   Catch::Contains("heads=16 can"));
  const auto& excluded = json.at("excluded").as_array();
  REQUIRE(excluded.size() == result.exclusions.groups().size());
  REQUIRE(excluded.at(0).at("layouts").as_integer() > 0);
  const std::string svg = search_svg(result, options);
  REQUIRE_THAT(svg, Catch::StartsWith("<svg ") && Catch::EndsWith("</svg>\n") &&
                        Catch::Contains("class=\"best\"") && !Catch::Contains("nan"));
}

TEST_CASE("where f32 moments do not fit, a search of their dtype finds that bf16 ones do") {
  SearchOptions options = small_options({1});
  options.goal = SearchGoal::kMemory;
  const SearchResult in_f32 = search_small(options);
  REQUIRE(in_f32.best);
  options.hardware.memory.bytes = in_f32.candidates[*in_f32.best].bytes - 1;
  REQUIRE_FALSE(search_small(options).best);

  options.space.searches_state_dtype = true;
  const SearchResult in_bf16 = search_small(options);
  REQUIRE(in_bf16.best);
  const PlannedCandidate& best = in_bf16.candidates[*in_bf16.best];
  const std::string state = "task.learner.optimizer_tpl.state.";
  REQUIRE(best.candidate.state ==
          std::vector<std::string>{state + "first_moment=bf16", state + "second_moment=bf16"});
  REQUIRE(best.bytes <= options.hardware.memory.bytes);
  const std::vector<std::string> settings = settings_of(best.candidate, SettingStyle::kFields);
  const auto task = small_configure()(settings).task.as<SingleTask::HParams>();
  const auto& optimizer = task.learner.optimizer_tpl.as<AdamW::HParams>();
  REQUIRE((optimizer.state.first_moment == DType::kBF16 &&
           optimizer.state.second_moment == DType::kBF16));
  // The settings alone, without a search, are planned with the same memory and time.
  SearchOptions recipe_only = options;
  recipe_only.space.searches_state_dtype = false;
  recipe_only.seconds = 0.0;
  const Configure chosen = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), sets.begin(), sets.end());
    return with_settings(small_recipe(), all);
  };
  const SearchResult planned = search(chosen, SettingStyle::kFields, 1, recipe_only);
  REQUIRE(planned.recipe.bytes == best.bytes);
  REQUIRE(planned.recipe.seconds == best.seconds);
}

TEST_CASE("a recipe without state that could be bf16 is not searched with it") {
  SearchOptions options = small_options({2});
  options.space.searches_state_dtype = true;
  const Configure without_state = [](std::vector<std::string> sets) {
    sets.insert(sets.begin(), "task.learner.optimizer_tpl=Sgd");  // Without momentum.
    return with_settings(small_recipe(), sets);
  };
  REQUIRE_THROWS_WITH(search(without_state, SettingStyle::kFields, 1, options),
                      Catch::Contains("--search_state_dtype") &&
                          Catch::Contains("has no state that could be bf16"));
}

TEST_CASE("near layouts differ in a prime factor at most") {
  const Layout one{"fsdp_tensor",
                   strategy_rules(Strategy::kFullyShardedTensor),
                   {"replica", "data", "mdl"},
                   {1, 8, 6},
                   {}};
  const auto with = [&](std::vector<int64_t> ici, std::vector<int64_t> dcn = {}) {
    Layout other = one;
    other.ici = std::move(ici);
    other.dcn = std::move(dcn);
    return other;
  };
  REQUIRE_FALSE(are_near(one, one));
  REQUIRE(are_near(one, with({1, 4, 12})));
  REQUIRE(are_near(one, with({1, 24, 2})));
  REQUIRE(are_near(one, with({2, 4, 6})));
  REQUIRE_FALSE(are_near(one, with({1, 2, 24})));
  REQUIRE_FALSE(are_near(one, with({2, 8, 3}, {1, 1, 2})));
  REQUIRE_FALSE(are_near(one, with({1, 4, 6})));
  REQUIRE(are_near(with({1, 8, 6}, {1, 2, 1}), with({1, 8, 6}, {1, 1, 2})));
  Layout other = one;
  other.strategy = "pax";
  REQUIRE(are_near(one, other));
  other.ici = {1, 4, 12};
  REQUIRE(are_near(one, other));
  other.ici = {2, 2, 12};
  REQUIRE_FALSE(are_near(one, other));
}

TEST_CASE("neighbours differ in one choice, and keep the others where the layout permits") {
  const Recipe recipe = read_recipe(small_configure()({}), 1);
  const Space space(recipe, {.devices = {4}});
  const auto layout = std::ranges::find(space.layouts(), "fsdp_tensor data=2 mdl=2", &Layout::text);
  REQUIRE(layout != space.layouts().end());
  Candidate of = space.start(*layout).value();
  REQUIRE(of.text() == "fsdp_tensor data=2 mdl=2, save_nothing");
  of.microbatches = 2;
  std::set<std::string> texts;
  for (const Candidate& each : space.neighbours(of)) texts.insert(each.text());
  for (const char* text : {"fsdp_tensor data=2 mdl=2, save_nothing",
                           "fsdp_tensor data=2 mdl=2, 2 microbatches, save_dot_only",
                           "fsdp_sequence data=2 mdl=2, 2 microbatches, save_nothing",
                           "fsdp_tensor replica=2 mdl=2, 2 microbatches, save_nothing"}) {
    CAPTURE(text, fmt::format("{}", fmt::join(texts, "\n")));
    REQUIRE(texts.contains(text) == (std::string_view(text).find("replica") == std::string::npos));
  }
  REQUIRE_FALSE(space.more_microbatches(of));
  of.microbatches = 1;
  REQUIRE(space.more_microbatches(of)->microbatches == 2);
}

TEST_CASE("factorizations are all ordered ways to write a number as a product") {
  REQUIRE(factorizations(4, 2) == pairs({{1, 4}, {2, 2}, {4, 1}}));
  REQUIRE(factorizations(1, 3) == pairs({{1, 1, 1}}));
  REQUIRE(factorizations(1536, 3).size() == 165);
  REQUIRE(factorizations(2, 0).empty());
}

TEST_CASE("slices that do not divide the devices are refused") {
  SearchOptions options = small_options({12});
  options.space.slice = 8;
  REQUIRE_THROWS_WITH(search_small(options),
                      Catch::Contains("12 devices cannot be divided among slices of 8"));
}

TEST_CASE("a mesh that does not fit has a nearest one that does") {
  ExperimentConfig config = small_recipe();
  REQUIRE_FALSE(nearest_fitting_shape(config, 2));
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  config.mesh.ici_mesh_shape = {1, 1, 8};  // 12 heads.
  REQUIRE(nearest_fitting_shape(config, 8) == std::vector<int64_t>{1, 2, 4});
  config.mesh.ici_mesh_shape = {1, 7, 1};  // Neither 4 sequences nor 12 heads.
  REQUIRE_FALSE(nearest_fitting_shape(config, 7));
}

TEST_CASE("a file of settings is read back, and anything else in it is an error") {
  const TemporaryDirectory folder;
  const std::vector<std::string> sets = {"strategy=fsdp", "rules.weights=embed -> (data, \"x\")"};
  const auto file = folder / "search.toml";
  write_file_atomically(file, set_file_text(sets, "first line\nsecond line"));
  REQUIRE_THAT(read_file(file), Catch::StartsWith("# first line\n# second line\nset = ["));
  REQUIRE(read_set_file(file) == sets);
  for (const char* text : {"sets = []", "set = \"a=1\"", "set = [1]", "set = []\nother = 1"}) {
    write_file_atomically(file, text);
    REQUIRE_THROWS_WITH(read_set_file(file), Catch::Contains("search.toml"));
  }
  REQUIRE_THROWS_WITH(read_set_file(folder / "absent"), Catch::Contains("does not exist"));
}

}  // namespace
}  // namespace tessera
