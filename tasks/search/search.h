// SPDX-License-Identifier: Apache-2.0
// --mode=plan --search: the best layout, pipeline schedule, number of microbatches and remat policy
// for a recipe on N devices, by the plans of candidates (space.h). A candidate whose bound
// (bounds.h) is not better than a known plan is not planned, so that the result is that of planning
// all of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "tasks/hardware/hardware.h"
#include "tasks/plan/plan.h"
#include "tasks/search/recipe.h"
#include "tasks/search/space.h"

namespace tessera {

enum class SearchGoal {
  kTime,
  kCost,    // Of a step: devices × time × price.
  kMemory,  // Of a device.
};
struct SearchOptions {
  Hardware hardware;
  SpaceOptions space;  // No devices: as many as the recipe has.
  SearchGoal goal = SearchGoal::kTime;
  double seconds = 60.0;                // When to end with what was found.
  bool prunes = true;                   // false: plan every candidate.
  std::filesystem::path run_directory;  // Where inputs may find a snapshot of their corpus.
};

enum class CandidateState {
  kListed,    // Not looked at: its bound was too high, or time ran out.
  kCompiled,  // The same, with the bounds of its program.
  kPlanned,
  kRefused,  // It cannot be, or is not planned, as `refusal` says.
};

struct Searched {
  Candidate candidate;
  CandidateState state = CandidateState::kListed;
  double seconds = 0.0;  // Of a step; a lower bound until it is planned.
  int64_t bytes = 0;     // On each device; a lower bound until it is planned.
  int64_t stored = 0;    // Of them parameters and state; a lower bound.
  double mfu = 0.0;      // Of a plan.
  double exposed = 0.0;  // Seconds that compute may not hide of collectives, for an order only.
  std::string refusal = {};

  int64_t devices() const { return candidate.layout.devices(); }
};

// The recipe as it is.
struct RecipePlan {
  int64_t devices = 1;
  std::string text;  // "pax data=4, save_nothing"
  double seconds = 0.0;
  int64_t bytes = 0;
  double mfu = 0.0;
  std::string refusal = {};  // Why there is no plan.
};

struct SearchResult {
  RecipePlan recipe;
  std::vector<Searched> candidates;
  std::optional<size_t> best;              // By the goal, of those that fit the memory.
  std::vector<size_t> best_of_devices;     // For each number of devices that has one.
  std::vector<size_t> frontier;            // Planned and fitting, from fast to small.
  std::map<std::string, int64_t> refused;  // Combinations that were never candidates.
  bool is_complete = true;                 // Nothing better exists: the time sufficed.
  double best_possible = 0.0;              // If not: the least bound that is left, by the goal.
  int64_t smaller_state_saves = 0;         // Bytes of the best one, with state in bf16.
  double proven = 0.0;                     // Seconds until the best one was proven, if it is.
  double elapsed = 0.0;                    // Seconds, with the time for the frontier.

  const Searched& best_candidate() const;  // Error if none fits.
};

// By the goal; less is better. The cost of a step is its share of an hour of all devices, times
// Hardware::price_per_hour if the file has one.
double score(SearchGoal goal, const Hardware& hardware, int64_t devices, double seconds,
             int64_t bytes);

// Error if the recipe's step cannot be traced on one device.
SearchResult search(const Configure& configure, SettingStyle style, int64_t recipe_devices,
                    const SearchOptions& options);

// Of candidates that are planned and fit: those that no other one beats in time and memory.
std::vector<size_t> frontier_of(const std::vector<Searched>& candidates, int64_t memory);

}  // namespace tessera
