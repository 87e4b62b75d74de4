// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <queue>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tasks/plan/prediction.h"
#include "tasks/search/bounds.h"
#include "tasks/train/train_session.h"

namespace tessera {
namespace {

// A step with more launches takes longer to plan than its candidate is worth.
constexpr int64_t kMostLaunches = 2'000'000;
// So many programs are compiled before the most promising one of them is planned: a plan found
// early rules out candidates that are only listed.
constexpr int64_t kCompiledPerPlan = 40;
// The frontier below the best plan has the fastest plans under 1/2, 1/4 and 1/8 of its memory.
constexpr int kFrontierSteps = 3;
constexpr double kHour = 3600.0;
// The share of the time of collectives that estimates add to that of compute.
constexpr double kExposed = 0.3;

// Whether two candidates differ in one choice: the strategy, the microbatches, the policy, the
// schedule, or a factor that moves from one mesh axis to another.
bool are_neighbours(const Candidate& a, const Candidate& b) {
  if (a.layout.devices() != b.layout.devices()) return false;
  const bool same_axes = a.layout.axis_names == b.layout.axis_names;
  const bool same_rules = same_axes && a.layout.strategy == b.layout.strategy;
  int64_t differing = 0;  // Mesh axes.
  if (same_axes)
    for (size_t i = 0; i < a.layout.ici.size(); ++i) {
      const auto dcn = [i](const Layout& layout) { return layout.dcn.empty() ? 1 : layout.dcn[i]; };
      if (a.layout.ici[i] != b.layout.ici[i] || dcn(a.layout) != dcn(b.layout)) ++differing;
    }
  const int64_t choices =
      (a.microbatches != b.microbatches ? 1 : 0) + (a.remat_policy != b.remat_policy ? 1 : 0) +
      (a.schedule.name != b.schedule.name || a.schedule.chunks != b.schedule.chunks ? 1 : 0);
  if (same_rules && differing == 0) return choices == 1;
  if (same_rules) return differing == 2 && choices == 0;
  return same_axes && differing == 0 && choices == 0;
}

Plan planned(const ExperimentConfig& config, int64_t devices, Device& device,
             const SearchOptions& options) {
  ProcessGroup alone;
  Session session(config,
                  {.run_directory = options.run_directory, .devices = devices, .allocates = false},
                  {&device}, alone);
  Plan plan = session.plan();
  plan.prediction = predict(session.executor().stage_plans(session.train_program().program()),
                            session.mesh(), session.tokens_per_step(), options.hardware);
  return plan;
}

class Search {
 public:
  Search(const Configure& configure, SettingStyle style, int64_t recipe_devices,
         SearchOptions options)
      : configure_(configure),
        style_(style),
        options_(std::move(options)),
        recipe_devices_(recipe_devices),
        device_(make_planned_device(options_.hardware)),
        work_(configure_, options_.hardware),
        recipe_(read_recipe(configure({}), recipe_devices)) {
    if (options_.space.devices.empty()) options_.space.devices = {recipe_.devices};
  }

  SearchResult run() {
    plan_recipe();
    list();
    if (!options_.prunes) {
      for (size_t i = 0; i < all().size() && !is_late(); ++i) plan(i);
      result_.is_complete = !is_late();
    }
    for (const int64_t devices : options_.space.devices) {
      if (options_.prunes) descend(devices);
      const auto best = best_under(memory(), devices, options_.goal);
      if (!best) continue;
      result_.best_of_devices.push_back(*best);
      if (!result_.best || score_of(*best) < score_of(*result_.best)) result_.best = best;
    }
    if (result_.best && options_.prunes) extend_frontier();
    if (!result_.best && options_.prunes) find_least_memory();
    result_.frontier = frontier_of(all(), memory());
    result_.elapsed = elapsed();
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<Searched>& all() { return result_.candidates; }
  int64_t memory() const { return options_.hardware.memory.bytes; }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool is_late() const { return elapsed() > options_.seconds; }
  double score_of(size_t i) { return score_of(i, options_.goal); }
  double score_of(size_t i, SearchGoal goal) {
    const Searched& one = all()[i];
    return score(goal, options_.hardware, one.devices(), one.seconds, one.bytes);
  }

  void refuse(Searched& one, std::string why) {
    one.state = CandidateState::kRefused;
    one.refusal = std::move(why);
  }

  void plan_recipe() {
    RecipePlan& recipe = result_.recipe;
    const Mesh mesh = planned_mesh(recipe_.config.mesh, recipe_devices_);
    recipe.devices = mesh.num_devices();
    recipe.text = fmt::format("{}, {}", mesh.text(), recipe_.remat_policy);
    if (recipe_.microbatches > 1)
      recipe.text += fmt::format(", {} microbatches", recipe_.microbatches);
    try {
      const ProgramBounds bounds = program_bounds(recipe_.config, *device_, options_.hardware);
      if (bounds.launches > kMostLaunches) {
        recipe.refusal = fmt::format("its step has {} launches, which take too long to plan here",
                                     bounds.launches);
        return;
      }
      const Plan plan = planned(recipe_.config, recipe_devices_, *device_, options_);
      recipe.seconds = plan.prediction->step_seconds;
      recipe.bytes = plan.arena;
      recipe.mfu = plan.prediction->mfu;
    } catch (const Error& error) {
      recipe.refusal = error.what();
    }
  }

  // Lists the candidates with the bounds that need no trace on their mesh.
  void list() {
    Space space = list_candidates(recipe_, options_.space);
    result_.refused = std::move(space.refused);
    for (Candidate& candidate : space.candidates) {
      const std::string& same = work_.policy_class(candidate.microbatches, candidate.remat_policy);
      if (same != candidate.remat_policy) continue;  // An equal one is listed.
      Searched one{.candidate = std::move(candidate)};
      try {
        one.seconds = work_.seconds(one.candidate);
        one.bytes = stored_bytes(recipe_, one.candidate.layout);
      } catch (const Error& error) {
        refuse(one, error.what());
      }
      all().push_back(std::move(one));
    }
  }

  // What settings_of() gives, but the settings that candidates share are applied once for all of
  // them.
  ExperimentConfig config_of(const Searched& one) {
    Candidate shared = one.candidate;
    shared.layout = {};
    const std::vector<std::string> sets = settings_of(shared, style_);
    const auto [known, added] = configs_.try_emplace(fmt::format("{}", fmt::join(sets, "\n")));
    if (added) known->second = configure_(sets);
    ExperimentConfig config = known->second;
    const Layout& layout = one.candidate.layout;
    config.rules = layout.rules;
    config.mesh.axis_names = layout.axis_names;
    config.mesh.ici_mesh_shape = layout.ici;
    if (!layout.dcn.empty()) config.mesh.dcn_mesh_shape = layout.dcn;
    return config;
  }

  void compile(size_t i) {
    Searched& one = all()[i];
    try {
      const ProgramBounds bounds = program_bounds(config_of(one), *device_, options_.hardware);
      one.seconds = std::max(one.seconds, bounds.seconds());
      one.bytes = std::max(one.bytes, bounds.bytes);
      one.exposed = kExposed * (bounds.links + bounds.network);
      one.state = CandidateState::kCompiled;
      double& products = products_[products_key(one.candidate)];
      products = std::max(products, bounds.products);
      if (bounds.launches > kMostLaunches)
        refuse(one, fmt::format("a step of {} launches takes too long to plan", bounds.launches));
    } catch (const Error& error) {
      refuse(one, error.what());
    }
  }

  void plan(size_t i) {
    Searched& one = all()[i];
    if (one.state == CandidateState::kRefused || one.state == CandidateState::kPlanned) return;
    try {
      const Plan plan = planned(config_of(one), 1, *device_, options_);
      one.seconds = plan.prediction->step_seconds;
      one.bytes = plan.arena;
      one.mfu = plan.prediction->mfu;
      one.state = CandidateState::kPlanned;
    } catch (const Error& error) {
      refuse(one, error.what());
    }
  }

  // What programs of other candidates say about this one.
  bool raise_by_products(size_t i) {
    const auto known = products_.find(products_key(all()[i].candidate));
    if (known == products_.end() || known->second <= all()[i].seconds) return false;
    all()[i].seconds = known->second;
    return true;
  }

  // Finds a good candidate early, so that bounds rule out more: from the recipe's candidate, and
  // from the one that shards most, to the best neighbour as long as that is better.
  void descend(int64_t devices) {
    for (const bool from_recipe : {true, false}) {
      std::optional<size_t> at = first_step(devices, from_recipe);
      while (at && !is_late()) {
        plan(*at);
        const std::optional<size_t> next = best_neighbour(*at);
        if (!next || estimate(*next) >= estimate(*at)) break;
        at = next;
      }
    }
  }

  std::optional<size_t> first_step(int64_t devices, bool from_recipe) {
    std::optional<size_t> first;
    const Mesh mesh = planned_mesh(recipe_.config.mesh, recipe_devices_);
    for (size_t i = 0; i < all().size(); ++i) {
      const Searched& one = all()[i];
      if (one.state == CandidateState::kRefused || one.devices() != devices) continue;
      const bool is_recipe = one.candidate.layout.mesh() == mesh &&
                             one.candidate.layout.rules.weights == recipe_.config.rules.weights &&
                             one.candidate.microbatches == recipe_.microbatches;
      if (from_recipe && is_recipe) return i;
      const bool is_small =
          one.candidate.layout.stages() == 1 && (!first || one.bytes < all()[*first].bytes);
      if (!from_recipe && is_small) first = i;
    }
    return first;
  }

  // The score that a candidate may have, for an order; it proves nothing. Less memory first until
  // it fits.
  double estimate(size_t i) {
    constexpr double kTooLarge = 1e12;
    const Searched& one = all()[i];
    if (one.state == CandidateState::kRefused || one.state == CandidateState::kListed)
      return std::numeric_limits<double>::infinity();
    const double exposed = one.state == CandidateState::kPlanned ? 0.0 : one.exposed;
    const double its_score =
        score(options_.goal, options_.hardware, one.devices(), one.seconds + exposed, one.bytes);
    if (one.bytes <= memory()) return its_score;
    return kTooLarge * (static_cast<double>(one.bytes) / static_cast<double>(memory()));
  }

  std::optional<size_t> best_neighbour(size_t at) {
    std::optional<size_t> best;
    for (size_t i = 0; i < all().size() && !is_late(); ++i) {
      if (all()[i].state == CandidateState::kRefused ||
          !are_neighbours(all()[at].candidate, all()[i].candidate))
        continue;
      if (all()[i].state == CandidateState::kListed) compile(i);
      if (!best || estimate(i) < estimate(*best)) best = i;
    }
    return best;
  }

  using Entry = std::pair<double, size_t>;  // The score or its lower bound, and the candidate.
  using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  // A search among the candidates on so many devices that need at most `limit` bytes.
  struct Round {
    int64_t limit = 0, devices = 1;
    SearchGoal goal = SearchGoal::kTime;
    Queue listed = {}, compiled = {};
    int64_t compiled_since_plan = 0;
    std::optional<size_t> best = {};
  };

  // Remembers a planned candidate if it is better, and queues another one.
  void add(Round& round, size_t i) {
    const Searched& one = all()[i];
    if (one.state == CandidateState::kRefused || one.bytes > round.limit) return;
    const double its_score = score_of(i, round.goal);
    if (one.state == CandidateState::kPlanned) {
      const auto order = [&](size_t which) {
        return std::pair(score_of(which, round.goal), all()[which].bytes);
      };
      if (!round.best || order(i) < order(*round.best)) round.best = i;
    } else {
      (one.state == CandidateState::kListed ? round.listed : round.compiled).emplace(its_score, i);
    }
  }

  // Empties a queue whose first entry, and so each entry, has a bound that is not below the best
  // score.
  void drop_worse(const Round& round, Queue& queue) {
    if (!queue.empty() && round.best && queue.top().first >= score_of(*round.best, round.goal))
      queue = {};
  }

  // Plans or compiles the candidate with the lowest bound.
  void advance(Round& round) {
    const bool plans = !round.compiled.empty() &&
                       (round.listed.empty() || round.compiled_since_plan >= kCompiledPerPlan ||
                        round.compiled.top() <= round.listed.top());
    Queue& queue = plans ? round.compiled : round.listed;
    const size_t i = queue.top().second;
    queue.pop();
    if (plans) {
      plan(i);
      round.compiled_since_plan = 0;
    } else if (!raise_by_products(i)) {
      compile(i);
      ++round.compiled_since_plan;
    }
    add(round, i);
  }

  // The candidate with the least score, which is proven if nothing is queued any more: each other
  // one has a lower bound that is not below this score. nullopt if none fits.
  std::optional<size_t> best_under(int64_t limit, int64_t devices, SearchGoal goal) {
    Round round{.limit = limit, .devices = devices, .goal = goal};
    for (size_t i = 0; i < all().size(); ++i)
      if (all()[i].devices() == devices) add(round, i);
    for (;;) {
      drop_worse(round, round.listed);
      drop_worse(round, round.compiled);
      if (round.listed.empty() && round.compiled.empty()) return round.best;
      if (is_late()) {
        note_rest(round);
        return round.best;
      }
      advance(round);
    }
  }

  // Time has run out.
  void note_rest(const Round& round) {
    if (round.goal != options_.goal) return;
    double least = std::numeric_limits<double>::infinity();
    for (const Queue* queue : {&round.listed, &round.compiled})
      if (!queue->empty()) least = std::min(least, queue->top().first);
    result_.best_possible = result_.is_complete ? least : std::min(least, result_.best_possible);
    result_.is_complete = false;
  }

  // Faster plans, if that is not the goal, and then smaller ones.
  void extend_frontier() {
    const int64_t devices = all()[*result_.best].devices();
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

  // So that the message can name the candidate that needs least.
  void find_least_memory() {
    for (const int64_t devices : options_.space.devices)
      best_under(std::numeric_limits<int64_t>::max(), devices, SearchGoal::kMemory);
  }

  const Configure& configure_;
  SettingStyle style_;
  SearchOptions options_;
  int64_t recipe_devices_;
  std::unique_ptr<Device> device_;
  WorkBounds work_;
  Recipe recipe_;
  std::map<std::string, ExperimentConfig> configs_;  // Of all meshes, by their other settings.
  std::map<std::string, double> products_;  // The most seconds that are known, by products_key().
  SearchResult result_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

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

SearchResult search(const Configure& configure, SettingStyle style, int64_t recipe_devices,
                    const SearchOptions& options) {
  return Search(configure, style, recipe_devices, options).run();
}

std::vector<size_t> frontier_of(const std::vector<Searched>& candidates, int64_t memory) {
  std::vector<size_t> fitting, frontier;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].state == CandidateState::kPlanned && candidates[i].bytes <= memory)
      fitting.push_back(i);
  std::ranges::stable_sort(
      fitting, {}, [&](size_t i) { return std::pair(candidates[i].seconds, candidates[i].bytes); });
  for (const size_t i : fitting)
    if (frontier.empty() || candidates[i].bytes < candidates[frontier.back()].bytes)
      frontier.push_back(i);
  return frontier;
}

}  // namespace tessera
