// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/devices/cpu/thread_pool.h"
#include "core/graph/type.h"
#include "core/ops/pipeline.h"
#include "inputs/checked_input.h"
#include "tasks/planner/prediction.h"
#include "tasks/run/session/step_checks.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/base_task.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {
namespace {

// A step with more launches takes longer to plan than its candidate is worth.
constexpr int64_t kMostLaunches = 2'000'000;
// Layouts of each strategy that are planned to begin with: at these parts of their list. They take
// at most this share of the time.
constexpr double kStarts[] = {0.5, 0.25, 0.75, 0.0, 0.99};
constexpr double kTimeForStarts = 0.25;
// The search ends after so many candidates whose neighbours are all planned and not better.
constexpr int kMostFinished = 32;
// Candidates that are planned at the same time, on any number of processors.
constexpr std::ptrdiff_t kTogether = 8;
constexpr int kMostWorkers = 8;
// Below the best plan, the frontier has the best plans under 1/2, 1/4 and 1/8 of its memory.
constexpr int kFrontierSteps = 3;

int64_t launches_of(const Graph& graph) {
  int64_t launches = 0;
  for (const Node& node : graph.nodes()) {
    for (const auto& [body, runs] : run_bodies(node)) launches += runs * launches_of(*body);
    if (!runs_bodies(node) && !view_offset(graph, node)) ++launches;
  }
  return launches;
}

// Error if the model, the batch or the pipeline does not fit the mesh.
PlannedStep plan_step(const ExperimentConfig& config, int64_t devices, Device& device,
                      const SearchOptions& options) {
  ProcessGroup alone;
  const int64_t stages = planned_mesh(config.mesh, devices).stages();
  const auto check_launches = [stages](std::string_view stage, const Graph& graph) {
    if (stage != "schedule") return;
    const int64_t launches = stages * launches_of(graph);
    if (launches > kMostLaunches) fail("a step of {} launches takes too long to plan", launches);
  };
  const Session session(config,
                        {.run_directory = options.run_directory,
                         .devices = devices,
                         .allocates = false,
                         .on_stage = check_launches},
                        {&device}, alone);
  const CompiledStep step = session.compiled_step();
  const Prediction prediction = predict(step, options.hardware);
  return {.seconds = prediction.step_seconds, .bytes = step.arena_bytes, .mfu = prediction.mfu};
}

class Search {
 public:
  Search(const Configure& configure, SettingStyle style, int64_t recipe_devices,
         SearchOptions options)
      : configure_(configure),
        style_(style),
        options_(std::move(options)),
        recipe_devices_(recipe_devices),
        workers_(std::min(usable_processors(), kMostWorkers)),
        recipe_(read_recipe(configure({}), recipe_devices)) {
    if (options_.space.devices.empty()) options_.space.devices = {recipe_.devices};
    recipe_.smaller_state = find_smaller_state(configure_, recipe_);
    if (options_.space.searches_state_dtype && recipe_.smaller_state.settings.empty())
      fail(
          "--search_state_dtype: the optimizer of this recipe has no state that could be bf16 and "
          "is not; search without it");
    for (int i = 0; i < workers_.size(); ++i)
      devices_.push_back(make_planned_device(options_.hardware));
    space_.emplace(recipe_, options_.space);
  }

  SearchResult run() {
    result_.exclusions = space_->exclusions();
    for (const Layout& layout : space_->layouts())
      result_.combinations += std::ssize(space_->candidates(layout));
    plan_recipe();
    const auto numbers = static_cast<double>(options_.space.devices.size());
    for (const int64_t devices : options_.space.devices) {
      until_ += options_.seconds / numbers;
      plan_starts(devices);
      const auto best = best_under(memory(), devices, options_.goal);
      if (!best) continue;
      result_.best_of_devices.push_back(*best);
      if (!result_.best || score_of(*best) < score_of(*result_.best)) result_.best = best;
    }
    until_ = options_.seconds;
    if (result_.best) {
      extend_frontier();
    } else {
      find_least_memory();
    }
    result_.frontier = frontier_of(all(), memory());
    if (result_.best && !options_.space.searches_state_dtype) note_smaller_state();
    result_.elapsed = elapsed();
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<PlannedCandidate>& all() { return result_.candidates; }
  int64_t memory() const { return arena_room(options_.hardware); }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool is_late() const { return elapsed() > until_; }
  double score_of(size_t i) { return score_of(i, options_.goal); }
  double score_of(size_t i, SearchGoal goal) {
    const PlannedCandidate& one = all()[i];
    return score(goal, options_.hardware, one.devices(), one.seconds, one.bytes);
  }

  void plan_recipe() {
    RecipePlan& recipe = result_.recipe;
    const Mesh mesh = planned_mesh(recipe_.config.mesh, recipe_devices_);
    recipe.devices = mesh.num_devices();
    recipe.text = fmt::format("{}, {}", mesh.text(), recipe_.remat_policy);
    if (recipe_.microbatches > 1)
      recipe.text += fmt::format(", {} microbatches", recipe_.microbatches);
    try {
      static_cast<PlannedStep&>(recipe) =
          plan_step(recipe_.config, recipe_devices_, *devices_[0], options_);
    } catch (const Error& error) {
      recipe.refusal = error.what();
    }
  }

  // The configuration of a candidate by settings_of(). Settings that candidates share are applied
  // once for all of them.
  ExperimentConfig config_of(const Candidate& candidate) {
    Candidate shared = candidate;
    shared.layout = {};
    const std::vector<std::string> sets = settings_of(shared, style_);
    const auto [known, added] = configs_.try_emplace(fmt::format("{}", fmt::join(sets, "\n")));
    if (added) known->second = configure_(sets);
    ExperimentConfig config = known->second;
    const Layout& layout = candidate.layout;
    config.rules = layout.rules;
    config.mesh.axis_names = layout.axis_names;
    config.mesh.ici_mesh_shape = layout.ici;
    if (!layout.dcn.empty()) config.mesh.dcn_mesh_shape = layout.dcn;
    return config;
  }

  // Plans those that are not known yet, on all processors. Gives the new ones that have a plan.
  std::vector<size_t> plan(std::vector<Candidate> candidates) {
    std::erase_if(candidates,
                  [&](const Candidate& each) { return !known_.insert(each.text()).second; });
    std::vector<ExperimentConfig> configs;
    for (const Candidate& each : candidates) configs.push_back(config_of(each));
    std::vector<PlannedCandidate> planned(candidates.size());
    std::atomic<size_t> next = 0;
    workers_.run([&](int worker) {
      for (size_t k = next++; k < planned.size(); k = next++) {
        try {
          static_cast<PlannedStep&>(planned[k]) =
              plan_step(configs[k], 1, *devices_[static_cast<size_t>(worker)], options_);
        } catch (const std::exception& error) {
          planned[k].refusal = error.what();
        }
      }
    });
    std::vector<size_t> fresh;
    for (size_t k = 0; k < planned.size(); ++k) {
      planned[k].candidate = std::move(candidates[k]);
      if (planned[k].is_planned()) fresh.push_back(all().size());
      all().push_back(std::move(planned[k]));
    }
    return fresh;
  }

  // Plans the recipe's other choices on layouts of all kinds: from each strategy a few, pipelines
  // last, since they take longer to plan.
  void plan_starts(int64_t devices) {
    std::map<std::pair<bool, std::string>, std::vector<Candidate>> of_strategy;
    for (const Layout& layout : space_->layouts()) {
      if (layout.devices() != devices || layout.stored > room(devices)) continue;
      if (auto start = space_->start(layout))
        of_strategy[{layout.stages() > 1, layout.strategy}].push_back(std::move(*start));
    }
    const double until = elapsed() + kTimeForStarts * (until_ - elapsed());
    for (const double place : kStarts) {
      std::vector<Candidate> starts;
      for (const auto& [unused, list] : of_strategy)
        starts.push_back(list[static_cast<size_t>(place * static_cast<double>(list.size()))]);
      while (!starts.empty() && elapsed() < until) plan(take(starts, room(devices)));
    }
  }

  // The memory of a device, or what the smallest layout needs at least.
  int64_t room(int64_t devices) const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Layout& layout : space_->layouts())
      if (layout.devices() == devices) least = std::min(least, layout.stored);
    return std::max(memory(), least);
  }

  // Less is better.
  struct Order {
    int64_t excess = 0;  // Bytes beyond the limit.
    double score = 0.0;
    int64_t bytes = 0;
    size_t index = 0;
    auto operator<=>(const Order&) const = default;
  };

  // A search among the candidates on so many devices that need at most `limit` bytes.
  struct Walk {
    int64_t limit = 0, devices = 1;
    SearchGoal goal = SearchGoal::kTime;
    std::set<Order> open = {};                                 // Some neighbours are not planned.
    std::map<size_t, std::vector<Candidate>> neighbours = {};  // Those not planned yet.
    std::optional<Order> best = {};
    int steps = 0;
    std::map<std::string, int> turns = {};  // Turns of each strategy.
    int finished = 0;  // Candidates without a better neighbour, since the best was found.
  };

  // The best one that is found. nullopt if none fits.
  std::optional<size_t> best_under(int64_t limit, int64_t devices, SearchGoal goal) {
    Walk walk{.limit = limit, .devices = devices, .goal = goal};
    for (size_t i = 0; i < all().size(); ++i)
      if (all()[i].is_planned() && all()[i].devices() == devices) walk.open.insert(order(walk, i));
    if (!walk.open.empty()) walk.best = *walk.open.begin();
    while (!walk.open.empty() && walk.finished < kMostFinished && !is_late()) advance(walk);
    if (is_late()) result_.is_complete = false;
    if (!walk.best || walk.best->excess > 0) return std::nullopt;
    return walk.best->index;
  }

  Order order(const Walk& walk, size_t i) {
    const int64_t bytes = all()[i].bytes;
    return {std::max<int64_t>(0, bytes - walk.limit), score_of(i, walk.goal), bytes, i};
  }

  // The next candidate to advance: every other time the best one of the strategy that had the
  // fewest turns, so that a short search looks at all strategies.
  Order next_of(Walk& walk) {
    Order next = *walk.open.begin();
    if (walk.steps++ % 2 == 0) return next;
    int fewest = std::numeric_limits<int>::max();
    for (const Order& each : walk.open) {
      const int turns = walk.turns[all()[each.index].candidate.layout.strategy];
      if (turns < fewest) next = each;
      fewest = std::min(fewest, turns);
    }
    ++walk.turns[all()[next.index].candidate.layout.strategy];
    return next;
  }

  // Plans some neighbours of a candidate.
  void advance(Walk& walk) {
    const Order at = next_of(walk);
    const auto [left, is_first] = walk.neighbours.try_emplace(at.index);
    if (is_first) left->second = space_->neighbours(all()[at.index].candidate);
    const std::vector<Candidate> batch =
        take(left->second, std::max(walk.limit, room(walk.devices)));
    if (batch.empty()) {
      walk.open.erase(at);
      ++walk.finished;
    }
    for (const size_t i : plan(batch)) {
      const Order its_order = order(walk, i);
      walk.open.insert(its_order);
      if (its_order < *walk.best) {
        walk.best = its_order;
        walk.finished = 0;
      }
      if (all()[i].bytes <= walk.limit) continue;
      if (auto smaller = space_->more_microbatches(all()[i].candidate))
        left->second.push_back(std::move(*smaller));
    }
  }

  // Removes some candidates from the list: the first ones that are not planned and may fit.
  std::vector<Candidate> take(std::vector<Candidate>& list, int64_t limit) {
    std::erase_if(list, [&](const Candidate& each) {
      return each.layout.stored > limit || known_.contains(each.text());
    });
    const auto end = list.begin() + std::min(std::ssize(list), kTogether);
    std::vector<Candidate> taken(list.begin(), end);
    list.erase(list.begin(), end);
    return taken;
  }

  // Faster plans, if that is not the goal, and then smaller ones.
  void extend_frontier() {
    const int64_t devices = result_.best_candidate().devices();
    const bool was_complete = result_.is_complete;
    std::optional<size_t> fastest = result_.best;
    if (options_.goal == SearchGoal::kMemory)
      fastest = best_under(memory(), devices, SearchGoal::kTime);
    int64_t limit = fastest ? all()[*fastest].bytes : 0;
    for (int step = 0; step < kFrontierSteps && limit > 0 && !is_late(); ++step) {
      limit /= 2;
      if (!best_under(limit, devices, SearchGoal::kTime)) break;
    }
    result_.is_complete = was_complete;
  }

  // What state in bf16 would save.
  void note_smaller_state() {
    const SmallerState& smaller = recipe_.smaller_state;
    if (smaller.settings.empty()) return;
    const Layout& layout = result_.best_candidate().candidate.layout;
    result_.smaller_state_saves =
        stored_bytes(recipe_, layout, {}) - stored_bytes(recipe_, layout, smaller.settings);
  }

  // Finds the candidate that needs least memory, for the message.
  void find_least_memory() {
    for (const int64_t devices : options_.space.devices)
      best_under(std::numeric_limits<int64_t>::max(), devices, SearchGoal::kMemory);
  }

  const Configure& configure_;
  SettingStyle style_;
  SearchOptions options_;
  int64_t recipe_devices_;
  ThreadPool workers_;
  std::vector<std::unique_ptr<Device>> devices_;  // One for each worker.
  Recipe recipe_;
  std::optional<Space> space_;
  std::unordered_map<std::string, ExperimentConfig> configs_;  // For all meshes, by other settings.
  std::set<std::string> known_;                                // Texts of candidates.
  SearchResult result_;
  Clock::time_point start_ = Clock::now();
  double until_ = 0.0;  // When the search on some number of devices is to end.
};

constexpr double kHour = 3600.0;

constexpr size_t kMostTries = 48;

// Whether the training step can be traced on this mesh.
bool fits(const ExperimentConfig& config, const BaseTask& task, const BaseInput& input, Mesh mesh) {
  try {
    const AxisRules rules = make_rules(config.rules);
    check_rules(rules, mesh);
    if (const auto pipeline = model_pipeline(task.train(), task.model().parameters(), rules, mesh))
      mesh = with_pieces(std::move(mesh), *pipeline);
    const Type batch =
        apply_rules(rules.activations, mesh,
                    make_type(DType::kI32, {{"batch", input.global_batch_size(), {}}}));
    if (type_problem(batch, mesh)) return false;
    check_rules(rules, task.train_graph({mesh, rules, global_specification(input)}));
    return true;
  } catch (const Error&) {
    return false;
  }
}

Mesh with_shape(const Mesh& mesh, const std::vector<int64_t>& ici) {
  std::vector<MeshAxis> axes = mesh.axes();
  for (size_t i = 0; i < axes.size(); ++i) axes[i].ici = ici[i];
  return Mesh(std::move(axes));
}

double distance(const Mesh& mesh, const std::vector<int64_t>& ici) {
  double sum = 0.0;
  for (size_t i = 0; i < ici.size(); ++i)
    sum +=
        std::abs(std::log(static_cast<double>(ici[i]) / static_cast<double>(mesh.axes()[i].ici)));
  return sum;
}

}  // namespace

SearchResult search(const Configure& configure, SettingStyle style, int64_t recipe_devices,
                    const SearchOptions& options) {
  return Search(configure, style, recipe_devices, options).run();
}

const PlannedCandidate& SearchResult::best_candidate() const {
  CHECK(best.has_value(), "no candidate fits");
  return candidates[*best];
}

double score(SearchGoal goal, const Hardware& hardware, int64_t devices, double seconds,
             int64_t bytes) {
  switch (goal) {
    case SearchGoal::kTime:
      return seconds;
    case SearchGoal::kCost:
      return static_cast<double>(devices) * seconds * hardware.price_per_hour.value_or(1.0) / kHour;
    case SearchGoal::kMemory:
      return static_cast<double>(bytes);
  }
  return 0.0;
}

std::vector<size_t> frontier_of(const std::vector<PlannedCandidate>& candidates, int64_t memory) {
  std::vector<size_t> fitting, frontier;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].is_planned() && candidates[i].bytes <= memory) fitting.push_back(i);
  std::ranges::stable_sort(
      fitting, {}, [&](size_t i) { return std::pair(candidates[i].seconds, candidates[i].bytes); });
  for (const size_t i : fitting)
    if (frontier.empty() || candidates[i].bytes < candidates[frontier.back()].bytes)
      frontier.push_back(i);
  return frontier;
}

std::optional<std::vector<int64_t>> nearest_fitting_shape(const ExperimentConfig& config,
                                                          int64_t devices) {
  try {
    const Mesh mesh = planned_mesh(config.mesh, devices);
    std::vector<MeshAxis> single = mesh.axes();
    int64_t in_slice = 1;
    for (MeshAxis& axis : single) {
      in_slice *= axis.ici;
      axis.ici = axis.dcn = 1;
    }
    if (mesh.num_devices() == 1) return std::nullopt;
    const std::unique_ptr<BaseTask> task = config.task.instantiate();
    const std::unique_ptr<BaseInput> input = make_input(config.input);
    if (fits(config, *task, *input, mesh)) return std::nullopt;
    if (!fits(config, *task, *input, Mesh(std::move(single)))) return std::nullopt;
    std::vector<std::vector<int64_t>> shapes = factorizations(in_slice, mesh.axes().size());
    std::ranges::stable_sort(shapes, {},
                             [&](const std::vector<int64_t>& ici) { return distance(mesh, ici); });
    shapes.resize(std::min(shapes.size(), kMostTries));
    for (const std::vector<int64_t>& ici : shapes)
      if (fits(config, *task, *input, with_shape(mesh, ici))) return ici;
  } catch (const Error&) {
    // Something else is wrong, which the caller reports.
  }
  return std::nullopt;
}

}  // namespace tessera
