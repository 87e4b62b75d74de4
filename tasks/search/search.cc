// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>

#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "tasks/plan/prediction.h"
#include "tasks/search/bounds.h"
#include "tasks/search/work_bounds.h"
#include "tasks/train/train_session.h"

namespace tessera {
namespace {

// A step with more launches takes longer to plan than its candidate is worth.
constexpr int64_t kMostLaunches = 2'000'000;
// So many programs are compiled before the most promising one of them is planned: a plan found
// early rules out candidates that are only listed.
constexpr int64_t kCompiledPerPlan = 40;
// Candidates that are compiled, and that are planned, at the same time.
constexpr size_t kBatch = 8, kPlannedTogether = 2;
constexpr int kMostWorkers = static_cast<int>(kBatch);
// Candidates that wait at most for the programs of others while those are chosen.
constexpr size_t kMostLater = 64;
// The frontier below the best plan has the fastest plans under 1/2, 1/4 and 1/8 of its memory.
constexpr int kFrontierSteps = 3;
// The share of the time of collectives that estimates add to that of compute.
constexpr double kExposed = 0.3;

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
        workers_(std::min(usable_processors(), kMostWorkers)),
        recipe_(read_recipe(configure({}), recipe_devices)),
        work_(configure_, options_.hardware, recipe_) {
    if (options_.space.devices.empty()) options_.space.devices = {recipe_.devices};
    recipe_.smaller_state = find_smaller_state(configure_, recipe_);
    if (options_.space.searches_state_dtype && recipe_.smaller_state.settings.empty())
      fail(
          "--search_state_dtype: the optimizer of this recipe has no state that could be bf16 and "
          "is not; search without it");
    for (int i = 0; i < workers_.size(); ++i)
      devices_.push_back(make_planned_device(options_.hardware));
  }

  SearchResult run() {
    plan_recipe();
    list();
    if (!options_.prunes) {
      for (size_t i = 0; i < all().size() && !is_late(); ++i) plan({i});
      result_.is_complete = !is_late();
    }
    for (const int64_t devices : options_.space.devices) {
      if (options_.prunes) descend(devices);
      const auto best = best_under(memory(), devices, options_.goal);
      if (!best) continue;
      result_.best_of_devices.push_back(*best);
      if (!result_.best || score_of(*best) < score_of(*result_.best)) result_.best = best;
    }
    result_.proven = elapsed();
    if (result_.best && options_.prunes) extend_frontier();
    if (!result_.best && options_.prunes) find_least_memory();
    result_.frontier = frontier_of(all(), memory());
    if (result_.best && !options_.space.searches_state_dtype) note_smaller_state();
    result_.elapsed = elapsed();
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<Searched>& all() { return result_.candidates; }
  int64_t memory() const { return arena_room(options_.hardware); }
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
      const ProgramBounds bounds = program_bounds(recipe_.config, *devices_[0], options_.hardware);
      if (bounds.launches > kMostLaunches) {
        recipe.refusal = fmt::format("its step has {} launches, which take too long to plan here",
                                     bounds.launches);
        return;
      }
      const Plan plan = planned(recipe_.config, recipe_devices_, *devices_[0], options_);
      CHECK(plan.prediction.has_value(), "a plan with hardware has a prediction");
      recipe.seconds = plan.prediction->step_seconds, recipe.mfu = plan.prediction->mfu;
      recipe.bytes = plan.arena;
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
        one.bytes = one.stored = stored(one.candidate);
      } catch (const Error& error) {
        refuse(one, error.what());
      }
      all().push_back(std::move(one));
    }
  }

  // stored_bytes() of candidates, of which many in a row have one layout.
  int64_t stored(const Candidate& candidate) {
    const auto key = [](const Candidate& of) {
      return std::tie(of.layout.strategy, of.layout.rules.weights, of.layout.axis_names,
                      of.layout.ici, of.layout.dcn);
    };
    if (!stored_of_ || key(*stored_of_) != key(candidate)) {
      stored_of_ = candidate;
      stored_.clear();
    }
    const auto known = stored_.find(candidate.state);
    if (known != stored_.end()) return known->second;
    return stored_[candidate.state] = stored_bytes(recipe_, candidate);
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

  // Calls work(i, device, config) for each of these candidates by all workers. What it throws is
  // the reason why the candidate is refused.
  template <typename Work>
  void in_parallel(const std::vector<size_t>& which, const Work& work) {
    std::vector<ExperimentConfig> configs;
    for (const size_t i : which) configs.push_back(config_of(all()[i]));
    std::vector<std::string> refusals(which.size());
    std::atomic<size_t> next = 0;
    workers_.run([&](int worker) {
      for (size_t k = next++; k < which.size(); k = next++) {
        try {
          work(k, *devices_[static_cast<size_t>(worker)], configs[k]);
        } catch (const std::exception& error) {
          refusals[k] = error.what();
        }
      }
    });
    for (size_t k = 0; k < which.size(); ++k)
      if (!refusals[k].empty()) refuse(all()[which[k]], std::move(refusals[k]));
  }

  void compile(const std::vector<size_t>& which) {
    std::vector<ProgramBounds> bounds(which.size());
    in_parallel(which, [&](size_t k, Device& device, const ExperimentConfig& config) {
      bounds[k] = program_bounds(config, device, options_.hardware);
    });
    for (size_t k = 0; k < which.size(); ++k)
      if (all()[which[k]].state != CandidateState::kRefused) note(all()[which[k]], bounds[k]);
  }

  void note(Searched& one, const ProgramBounds& bounds) {
    const double beside = work_.seconds_beside_layers(one.candidate);
    shared_.add(one.candidate, bounds, beside);
    one.seconds = std::max(one.seconds, bounds.seconds(beside));
    one.bytes = std::max(one.bytes, bounds.bytes);
    one.exposed = kExposed * (bounds.links + bounds.network);
    one.state = CandidateState::kCompiled;
    if (bounds.launches > kMostLaunches)
      refuse(one, fmt::format("a step of {} launches takes too long to plan", bounds.launches));
  }

  void plan(const std::vector<size_t>& which) {
    std::vector<size_t> rest;
    for (const size_t i : which)
      if (all()[i].state != CandidateState::kRefused && all()[i].state != CandidateState::kPlanned)
        rest.push_back(i);
    struct Result {
      double seconds = 0.0, mfu = 0.0;
      int64_t bytes = 0;
    };
    std::vector<Result> results(rest.size());
    in_parallel(rest, [&](size_t k, Device& device, const ExperimentConfig& config) {
      const Plan plan = planned(config, 1, device, options_);
      results[k] = {plan.prediction->step_seconds, plan.prediction->mfu, plan.arena};
    });
    for (size_t k = 0; k < rest.size(); ++k) {
      Searched& one = all()[rest[k]];
      if (one.state == CandidateState::kRefused) continue;
      one.seconds = results[k].seconds;
      one.mfu = results[k].mfu;
      one.bytes = results[k].bytes;
      one.state = CandidateState::kPlanned;
    }
  }

  // What programs of other candidates say about this one.
  bool raise_by_others(size_t i) {
    Searched& one = all()[i];
    const double seconds = shared_.seconds(one.candidate);
    const int64_t bytes = one.stored + shared_.activation_bytes(one.candidate);
    if (seconds <= one.seconds && bytes <= one.bytes) return false;
    one.seconds = std::max(one.seconds, seconds);
    one.bytes = std::max(one.bytes, bytes);
    return true;
  }

  // Finds a good candidate early, so that bounds rule out more: from the recipe's candidate, and
  // from the one that shards most, to the best neighbour as long as that is better.
  void descend(int64_t devices) {
    for (const bool from_recipe : {true, false}) {
      std::optional<size_t> at = first_step(devices, from_recipe);
      while (at && !is_late()) {
        plan({*at});
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
    const bool fits = all()[at].state == CandidateState::kPlanned && all()[at].bytes <= memory();
    // Whether its bounds say that it is not better.
    const auto is_worse = [&](size_t i) {
      return fits && (all()[i].bytes > memory() || score_of(i) >= score_of(at));
    };
    std::vector<size_t> near;
    for (size_t i = 0; i < all().size(); ++i)
      if (i != at && are_neighbours(all()[at].candidate, all()[i].candidate)) near.push_back(i);
    for (std::vector<size_t> rest = near; !rest.empty() && !is_late();) {
      std::vector<size_t> batch, later;
      std::set<std::string> keys;
      for (const size_t i : rest) {
        if (all()[i].state != CandidateState::kListed) continue;
        raise_by_others(i);
        if (is_worse(i)) continue;
        const bool is_now =
            batch.size() < kBatch && keys.insert(common_key(all()[i].candidate)).second;
        (is_now ? batch : later).push_back(i);
      }
      compile(batch);
      rest = std::move(later);
    }
    std::optional<size_t> best;
    for (const size_t i : near)
      if (!best || estimate(i) < estimate(*best)) best = i;
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

  // Plans or compiles the candidates with the lowest bounds. How many at once does not depend on
  // the number of workers, so that the search is the same on any machine.
  void advance(Round& round) {
    const bool plans = !round.compiled.empty() &&
                       (round.listed.empty() || round.compiled_since_plan >= kCompiledPerPlan ||
                        round.compiled.top() <= round.listed.top());
    const std::vector<size_t> batch =
        plans ? next_of(round, round.compiled, kPlannedTogether) : next_listed(round);
    if (plans) {
      plan(batch);
      round.compiled_since_plan = 0;
    } else {
      compile(batch);
      round.compiled_since_plan += static_cast<int64_t>(batch.size());
    }
    for (const size_t i : batch) add(round, i);
  }

  std::vector<size_t> next_of(const Round& round, Queue& queue, size_t count) {
    std::vector<size_t> batch;
    for (drop_worse(round, queue); !queue.empty() && batch.size() < count;
         drop_worse(round, queue)) {
      batch.push_back(queue.top().second);
      queue.pop();
    }
    return batch;
  }

  // Of candidates that may learn from each other's programs, one at a time.
  std::vector<size_t> next_listed(Round& round) {
    std::vector<size_t> batch, later;
    std::set<std::string> keys;
    while (batch.size() < kBatch && later.size() < kMostLater) {
      const std::vector<size_t> next = next_of(round, round.listed, 1);
      if (next.empty()) break;
      if (raise_by_others(next[0])) {
        add(round, next[0]);
      } else if (keys.insert(common_key(all()[next[0]].candidate)).second) {
        batch.push_back(next[0]);
      } else {
        later.push_back(next[0]);
      }
    }
    for (const size_t i : later) add(round, i);
    return batch;
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
    if (recipe_.smaller_state.settings.empty()) return;
    Candidate smaller = result_.best_candidate().candidate;
    smaller.state = recipe_.smaller_state.settings;
    result_.smaller_state_saves = result_.best_candidate().stored - stored_bytes(recipe_, smaller);
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
  ThreadPool workers_;
  std::vector<std::unique_ptr<Device>> devices_;  // One for each worker.
  Recipe recipe_;
  WorkBounds work_;
  std::map<std::string, ExperimentConfig> configs_;  // Of all meshes, by their other settings.
  SharedBounds shared_;
  std::optional<Candidate> stored_of_;                  // The layout of `stored_`.
  std::map<std::vector<std::string>, int64_t> stored_;  // By settings of the state.
  SearchResult result_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

SearchResult search(const Configure& configure, SettingStyle style, int64_t recipe_devices,
                    const SearchOptions& options) {
  return Search(configure, style, recipe_devices, options).run();
}

}  // namespace tessera
