// SPDX-License-Identifier: Apache-2.0
// The candidates of --search: every layout of a recipe on N devices (rules, mesh) with a number of
// microbatches, a pipeline schedule and a remat policy. A candidate is a list of settings, as --set
// takes them, and changes neither the model nor the global batch nor the optimizer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tasks/search/recipe.h"

namespace tessera {

// Rules and a mesh.
struct Layout {
  std::string strategy;  // Its name; empty: the recipe's rules.
  RulesConfig rules;
  std::vector<std::string> axis_names;
  std::vector<int64_t> ici, dcn;  // In the order of the names; no dcn: one slice.

  Mesh mesh() const;
  int64_t devices() const { return mesh().num_devices(); }
  int64_t stages() const { return mesh().stages(); }
  std::string text() const;  // "fsdp_tensor data=8x2 mdl=4": 8 devices in each of 2 slices.
};

struct ScheduleChoice {
  std::string name;    // Of the template; empty: that of the recipe, or none.
  int64_t chunks = 1;  // Of layers on each stage.

  // Whether gradients of inputs and of weights are different tasks.
  bool splits_backward() const { return name == "ZeroBubbleH1"; }
};

struct Candidate {
  Layout layout;
  int64_t microbatches = 1;
  ScheduleChoice schedule;
  std::string remat_policy;
  std::vector<std::string> state;  // Settings of the optimizer's state; empty: the recipe's.

  std::string text() const;
};

// What the settings of a candidate name: a strategy by its name, or, where knobs have no effect
// (--config), its rules.
enum class SettingStyle { kKnobs, kFields };
std::vector<std::string> settings_of(const Candidate& candidate, SettingStyle style);

struct SpaceOptions {
  std::vector<int64_t> devices;
  std::optional<int64_t> slice;  // Devices with fast links; unset: as in the recipe.
  // Also optimizer state in bf16. It changes the numbers that a run computes.
  bool searches_state_dtype = false;
};

struct Space {
  std::vector<Candidate> candidates;
  std::map<std::string, int64_t> refused;  // Combinations that cannot be, by their explanation.
};

// Every combination. Named strategies whose rules use axes that the experiment's mesh lacks are
// left out; a mesh axis that rules use only beside another one, as `replica` of `fsdp`'s batch, has
// one device where both mean the same.
Space list_candidates(const Recipe& recipe, const SpaceOptions& options);

// The number of microbatches, which divides the batch on `shards` groups of devices: powers of two,
// one sequence each, and the recipe's number.
std::vector<int64_t> microbatch_choices(const Recipe& recipe, int64_t shards);

// Every list of `axes` factors whose product is `number`.
std::vector<std::vector<int64_t>> factorizations(int64_t number, size_t axes);

// Whether a search may go from the one to the other: two candidates that differ only in how the
// devices work on the same layout (microbatches, schedule, remat policy), or only in the strategy,
// or in a factor that moves from one mesh axis to another.
bool are_neighbours(const Candidate& a, const Candidate& b);

}  // namespace tessera
