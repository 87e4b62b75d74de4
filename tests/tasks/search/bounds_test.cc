// SPDX-License-Identifier: Apache-2.0
// Every bound of --search is at most what the plan of the candidate has, and close enough to be of
// use.
#include "tasks/search/bounds.h"

#include <algorithm>
#include <set>

#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "tasks/plan/prediction.h"
#include "tasks/search/live_bytes.h"
#include "tasks/search/work_bounds.h"
#include "tasks/train/train_session.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"
#include "tests/tasks/search/small_recipe.h"

namespace tessera {
namespace {

struct Planned {
  double seconds = 0.0;
  int64_t bytes = 0;
};

Planned plan_of(const ExperimentConfig& config, Device& device, const Hardware& hardware) {
  ProcessGroup alone;
  Session session(config, {.allocates = false}, {&device}, alone);
  const Plan plan = session.plan();
  return {predict(session.executor().stage_plans(session.train_program().program()), session.mesh(),
                  session.tokens_per_step(), hardware)
              .step_seconds,
          plan.arena};
}

// Whether a candidate is one of every kind rather than one of many alike.
bool is_chosen(size_t number) { return number % 7 == 0; }

TEST_CASE("no bound of a candidate exceeds its plan") {
  const SearchOptions options = small_options({4}, 1);
  const Configure configure = small_configure();
  const Recipe recipe = read_recipe(configure({}), 1);
  const std::unique_ptr<Device> device = make_planned_device(options.hardware);
  WorkBounds work(configure, options.hardware, recipe);
  SpaceOptions space = options.space;
  space.slice = 2;
  SharedBounds shared;
  std::set<std::string> keys;
  std::vector<std::pair<Candidate, Planned>> plans;
  double tightest_time = 0.0, tightest_memory = 0.0;
  const Space all = list_candidates(recipe, space);
  for (size_t i = 0; i < all.candidates.size(); ++i) {
    const Candidate& candidate = all.candidates[i];
    if (!is_chosen(i)) continue;
    CAPTURE(candidate.text());
    const ExperimentConfig config = configure(settings_of(candidate, SettingStyle::kFields));
    try {
      const Planned plan = plan_of(config, *device, options.hardware);
      const ProgramBounds bounds = program_bounds(config, *device, options.hardware);
      REQUIRE(work.seconds(candidate) <= plan.seconds);
      REQUIRE(stored_bytes(recipe, candidate) <= plan.bytes);
      const double beside = work.seconds_beside_layers(candidate);
      REQUIRE(bounds.seconds(beside) <= plan.seconds * (1.0 + 1e-9));
      REQUIRE(bounds.bytes <= plan.bytes);
      REQUIRE(work.seconds(candidate) > 0.0);
      tightest_time = std::max(tightest_time, bounds.seconds(beside) / plan.seconds);
      tightest_memory = std::max(
          tightest_memory, static_cast<double>(bounds.bytes) / static_cast<double>(plan.bytes));
      shared.add(candidate, bounds, beside);
      keys.insert(products_key(candidate));
      plans.emplace_back(candidate, plan);
    } catch (const Error&) {
      // Refused, which the search reports.
    }
  }
  REQUIRE(plans.size() >= 10);
  // What one candidate's program says of others.
  for (const auto& [candidate, plan] : plans) {
    CAPTURE(candidate.text());
    REQUIRE(shared.seconds(candidate) <= plan.seconds * (1.0 + 1e-9));
    REQUIRE(stored_bytes(recipe, candidate) + shared.activation_bytes(candidate) <= plan.bytes);
  }
  REQUIRE(keys.size() < plans.size());
  REQUIRE(tightest_time > 0.5);
  REQUIRE(tightest_memory > 0.7);
}

// Eight layers, 16 sequences: as a pipeline.
Configure pipeline_configure() {
  return [](const std::vector<std::string>& sets) {
    ExperimentConfig config = with_settings(small_recipe(), {});
    set_path(config, "task.model.lm_tpl.num_layers", "8");
    set_path(config, "input.global_batch_size", "16");
    return with_settings(std::move(config), sets);
  };
}

Candidate pipeline_candidate(int64_t stages, int64_t microbatches, ScheduleChoice schedule,
                             std::string policy) {
  return {.layout = {"pipeline",
                     strategy_rules(Strategy::kPipeline),
                     {"stage", "replica", "data", "mdl"},
                     {stages, 1, 1, 1},
                     {}},
          .microbatches = microbatches,
          .schedule = std::move(schedule),
          .remat_policy = std::move(policy)};
}

// Only products take time, all at the same rate.
Hardware only_products() {
  Hardware hardware = hardware_named("h100");
  hardware.launch_overhead = hardware.link.latency = hardware.network.latency = 0.0;
  hardware.memory.bandwidth = hardware.link.bandwidth = hardware.network.bandwidth = 1e30;
  hardware.peak_flops.elementwise = 1e30;
  hardware.tiles.reset();
  hardware.host.reset();
  return hardware;
}

TEST_CASE("the bounds of a pipeline have its bubble and what the last stage computes") {
  const Hardware hardware = only_products();
  const Configure configure = pipeline_configure();
  const Recipe recipe = read_recipe(configure({}), 1);
  const std::unique_ptr<Device> device = make_planned_device(hardware);
  WorkBounds work(configure, hardware, recipe);
  for (const ScheduleChoice& schedule :
       {ScheduleChoice{"OneForwardOneBackward", 1}, ScheduleChoice{"ZeroBubbleH1", 1},
        ScheduleChoice{"InterleavedOneForwardOneBackward", 2}})
    for (const int64_t stages : {2, 4})
      for (const std::string policy : {"save_nothing", "save_everything"}) {
        const Candidate candidate = pipeline_candidate(stages, 8, schedule, policy);
        CAPTURE(candidate.text());
        const ExperimentConfig config = configure(settings_of(candidate, SettingStyle::kFields));
        const Planned plan = plan_of(config, *device, hardware);
        const double beside = work.seconds_beside_layers(candidate);
        const ProgramBounds bounds = program_bounds(config, *device, hardware);
        REQUIRE(work.seconds(candidate) <= plan.seconds);
        REQUIRE(bounds.seconds(beside) <= plan.seconds * (1.0 + 1e-9));
        REQUIRE(bounds.bytes <= plan.bytes);
        // Attention is slower than the best product.
        REQUIRE(work.seconds(candidate) > 0.4 * plan.seconds);
        REQUIRE(bounds.seconds(beside) > 0.7 * plan.seconds);
        REQUIRE(bounds.seconds(beside) > bounds.seconds(0.0));
        if (policy == "save_everything") REQUIRE(bounds.bytes > plan.bytes / 2);
      }
}

TEST_CASE("a value that waits for a collective may be in memory as its result") {
  const Hardware hardware = hardware_named("h100");
  const Configure configure = pipeline_configure();
  const std::unique_ptr<Device> device = make_planned_device(hardware);
  for (const Strategy strategy : {Strategy::kFullyShardedSequence, Strategy::kPax})
    for (const int64_t microbatches : {1, 2}) {
      const Candidate candidate{.layout = {std::string(enum_name(strategy)),
                                           strategy_rules(strategy),
                                           {"replica", "data", "mdl"},
                                           {1, 2, 4},
                                           {}},
                                .microbatches = microbatches,
                                .remat_policy = "save_dot_only"};
      CAPTURE(candidate.text());
      const ExperimentConfig config = configure(settings_of(candidate, SettingStyle::kFields));
      const Planned plan = plan_of(config, *device, hardware);
      const ProgramBounds bounds = program_bounds(config, *device, hardware);
      REQUIRE(bounds.bytes <= plan.bytes);
      REQUIRE(bounds.common_bytes <= bounds.bytes);
      REQUIRE(bounds.bytes > plan.bytes / 2);
    }
}

TEST_CASE("what candidates share is the same in their programs") {
  const Hardware hardware = hardware_named("h100");
  const Configure configure = pipeline_configure();
  const std::unique_ptr<Device> device = make_planned_device(hardware);
  std::vector<ProgramBounds> bounds;
  std::vector<std::string> products, common;
  for (const std::vector<int64_t>& ici :
       {std::vector<int64_t>{2, 4, 2}, {4, 2, 2}, {1, 8, 2}, {8, 1, 2}}) {
    const Layout layout{"fsdp_tensor",
                        strategy_rules(Strategy::kFullyShardedTensor),
                        {"replica", "data", "mdl"},
                        ici,
                        {}};
    const Candidate candidate{.layout = layout, .remat_policy = "save_dot_only"};
    products.push_back(products_key(candidate));
    common.push_back(common_key(candidate));
    bounds.push_back(program_bounds(configure(settings_of(candidate, SettingStyle::kFields)),
                                    *device, hardware));
  }
  for (size_t i = 0; i < bounds.size(); ++i) {
    REQUIRE(products[i] == products[0]);
    REQUIRE(bounds[i].layer_products == Approx(bounds[0].layer_products).epsilon(1e-9));
    REQUIRE(bounds[i].common_layers > 0.0);
    REQUIRE(bounds[i].common_layers <= bounds[i].layers);
    REQUIRE(bounds[i].common_bytes > 0);
  }
  // The last two lack a collective.
  REQUIRE(common[1] == common[0]);
  REQUIRE(common[2] != common[0]);
  REQUIRE(common[3] != common[0]);
  REQUIRE(bounds[1].common_layers == Approx(bounds[0].common_layers).epsilon(1e-9));
  REQUIRE(bounds[1].common_bytes == bounds[0].common_bytes);
}

TEST_CASE(
    "a policy that recomputes more multiplies more, and policies that save the same are one") {
  const Configure configure = small_configure();
  const Hardware hardware = hardware_named("h100");
  const Recipe recipe = read_recipe(configure({}), 1);
  WorkBounds work(configure, hardware, recipe);
  Candidate candidate{.layout = {"replicas",
                                 strategy_rules(Strategy::kReplicas),
                                 {"replica", "data", "mdl"},
                                 {1, 2, 1},
                                 {}}};
  candidate.remat_policy = "save_everything";
  const double least = work.seconds(candidate);
  candidate.remat_policy = "save_nothing";
  const double most = work.seconds(candidate);
  REQUIRE(most > 1.1 * least);
  REQUIRE(most < 1.4 * least);
  REQUIRE(work.policy_class(1, "save_nothing") == "save_nothing");
  REQUIRE(work.policy_class(1, "no_such_name") == "save_nothing");
  REQUIRE(work.policy_class(1, "save_everything") == "save_everything");
}

TEST_CASE("live bytes count what is made before and read after a moment, views once") {
  Trial trial(Mesh(), {"f32[\"a=100\"]"});
  const Tensor x = trial.inputs()[0];
  const Tensor y = exp(x), z = exp(y);  // 400 bytes each.
  output("sum", exp(y + z));
  // Between z and the sum y and z are live; x is an input.
  REQUIRE(live_bytes(trial.graph()) == 800);
}

}  // namespace
}  // namespace tessera
