// SPDX-License-Identifier: Apache-2.0
// --mode=plan --search: a layout, pipeline schedule, number of microbatches and remat policy for a
// recipe on N devices whose plan is the best that is found: from several layouts with the recipe's
// other choices it goes to better neighbours (space.h), as long as there are any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tasks/planner/hardware/hardware.h"
#include "tasks/search/recipe.h"
#include "tasks/search/space.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

enum class SearchGoal {
  kTime,
  kCost,    // Cost of a step: devices × time × price.
  kMemory,  // Memory of a device.
};
struct SearchOptions {
  Hardware hardware;
  SpaceOptions space;  // No devices: as many as the recipe has.
  SearchGoal goal = SearchGoal::kTime;
  double seconds = 60.0;                // When to end with the best found so far.
  std::filesystem::path run_directory;  // Where inputs may find a snapshot of their corpus.
};

// What a step costs.
struct PlannedStep {
  double seconds = 0.0;
  int64_t bytes = 0;  // On each device.
  double mfu = 0.0;
  std::string refusal;  // Why there is no plan.

  bool is_planned() const { return refusal.empty(); }
};

struct PlannedCandidate : PlannedStep {
  Candidate candidate;

  int64_t devices() const { return candidate.layout.devices(); }
};

// The recipe as it is.
struct RecipePlan : PlannedStep {
  int64_t devices = 1;
  std::string text;  // "pax data=4, save_nothing"
};

struct SearchResult {
  RecipePlan recipe;
  std::vector<PlannedCandidate> candidates;  // All that were considered.
  std::optional<size_t> best;                // The best by the goal that fits the memory.
  std::vector<size_t> best_of_devices;       // For each number of devices that has one.
  std::vector<size_t> frontier;              // Planned and fitting, from fast to small.
  Exclusions exclusions;                     // Layouts that are not possible.
  int64_t combinations = 0;                  // Number of possible candidates.
  bool is_complete = true;                   // No start was left when the time ran out.
  int64_t smaller_state_saves = 0;           // Bytes of the best one, with state in bf16.
  double elapsed = 0.0;                      // Seconds.

  const PlannedCandidate& best_candidate() const;  // Error if none fits.
};

// The score by the goal; less is better. The cost of a step is its share of an hour of all devices,
// times Hardware::price_per_hour if the file has one.
double score(SearchGoal goal, const Hardware& hardware, int64_t devices, double seconds,
             int64_t bytes);

// Error if the recipe's step cannot be traced on one device.
SearchResult search(const Configure& configure, SettingStyle style, int64_t recipe_devices,
                    const SearchOptions& options);

// Candidates that are planned and fit, and that no other one beats in time and memory.
std::vector<size_t> frontier_of(const std::vector<PlannedCandidate>& candidates, int64_t memory);

// The ICI shape with as many devices and the same slices whose sizes differ least from the
// configured ones (by the sum of their ratios' logarithms) and on which the training step can be
// traced. nullopt if the configured mesh fits, if the configuration fails on one device too, so
// that the mesh is not the reason, or if none of the nearest shapes fits. `devices`: how many a
// mesh without a shape has.
std::optional<std::vector<int64_t>> nearest_fitting_shape(const ExperimentConfig& config,
                                                          int64_t devices);

}  // namespace tessera
