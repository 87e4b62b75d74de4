// SPDX-License-Identifier: Apache-2.0
// The candidates of --search: every layout of a recipe on N devices (rules, mesh) with a number of
// microbatches, a pipeline schedule and a remat policy. A candidate is a list of settings, as --set
// takes them, and changes neither the model nor the global batch nor the optimizer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "tasks/search/recipe.h"

namespace tessera {

// Rules and a mesh.
struct Layout {
  std::string strategy;  // Its name; empty: the recipe's rules.
  RulesConfig rules;
  std::vector<std::string> axis_names;
  std::vector<int64_t> ici, dcn;  // In the order of the names; no dcn: one slice.
  int64_t stored = 0;             // stored_bytes(), with the smallest state that is searched.

  Mesh mesh() const;
  int64_t devices() const { return mesh().num_devices(); }
  int64_t stages() const { return mesh().stages(); }
  std::string text() const;  // "fsdp_tensor data=8x2 mdl=4": 8 devices in each of 2 slices.
};

struct ScheduleChoice {
  std::string name;    // Name of the template; empty: that of the recipe, or none.
  int64_t chunks = 1;  // Chunks of layers on each stage.
  bool operator==(const ScheduleChoice&) const = default;
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

// How many layouts or candidates are left out for a reason.
struct LeftOut {
  int64_t count = 0;
  std::string reason;
};

// Layouts that a search leaves out because a size cannot be divided, and sizes that would let them
// in.
class Exclusions {
 public:
  // A mesh of a layout, which may be left out.
  void consider(const Mesh& mesh);
  // A layout that divides this size among `parts` devices along these mesh axes ("mdl").
  // `what`: an axis of a tensor or a setting; `where`: of which tensor, or empty.
  void add(const std::string& what, const std::string& where, int64_t size, const std::string& by,
           int64_t parts);
  // A layout that is left out for another reason.
  void add(const std::string& reason) { ++others_[reason]; }

  // Layouts by reason, large groups first. Where it is a size, the reason names a size that lets
  // some of them in.
  std::vector<LeftOut> groups() const;

 private:
  struct Size {
    std::string where;
    std::set<int64_t> parts;
    int64_t layouts = 0;
  };
  struct Key {
    std::string what, by;
    int64_t size = 0;
    auto operator<=>(const Key&) const = default;
  };
  std::map<std::string, std::set<int64_t>> tried_;  // Sizes above 1 of mesh axes.
  std::map<Key, Size> sizes_;
  std::map<std::string, int64_t> others_;
};

class Space {
 public:
  // Lists the layouts. Named strategies whose rules use axes that the experiment's mesh lacks are
  // left out; a mesh axis that rules use only beside another one, as `replica` of `fsdp`'s batch,
  // has one device where both mean the same. The recipe must outlive it.
  Space(const Recipe& recipe, const SpaceOptions& options);

  const std::vector<Layout>& layouts() const { return layouts_; }
  const Exclusions& exclusions() const { return exclusions_; }

  // Every combination of a layout with the other choices.
  std::vector<Candidate> candidates(const Layout& layout) const;
  // The candidate with the recipe's other choices, or those nearest to them; nullopt if a pipeline
  // has one row.
  std::optional<Candidate> start(const Layout& layout) const;
  // Candidates that differ in one choice: the next number of microbatches, another schedule, remat
  // policy or dtype of state, another strategy on the same mesh, or a mesh on which a prime factor
  // of an axis is part of another one, with any strategy. Where the layout is another one, other
  // choices that it does not permit are the nearest ones.
  std::vector<Candidate> neighbours(const Candidate& of) const;
  // The candidate with the next larger number of microbatches.
  std::optional<Candidate> more_microbatches(Candidate candidate) const;

 private:
  std::vector<int64_t> microbatches(const Layout& layout) const;
  std::vector<ScheduleChoice> schedules(const Layout& layout) const;
  std::vector<std::vector<std::string>> states() const;
  std::optional<Candidate> moved(Candidate candidate, const Layout& layout) const;
  bool is_possible(const Layout& layout);

  const Recipe& recipe_;
  bool searches_state_dtype_;
  std::vector<Layout> layouts_;
  Exclusions exclusions_;
};

// The bytes of parameters and optimizer state that the layout leaves on each device, of those that
// all stages hold, with these settings of the state.
int64_t stored_bytes(const Recipe& recipe, const Layout& layout,
                     const std::vector<std::string>& state);

// Every list of `axes` factors whose product is `number`.
std::vector<std::vector<int64_t>> factorizations(int64_t number, size_t axes);

// Whether the meshes differ in one prime factor, which another axis has in the other mesh; or are
// equal, with other rules.
bool are_near(const Layout& a, const Layout& b);

}  // namespace tessera
