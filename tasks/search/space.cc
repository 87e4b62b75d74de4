// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/space.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/rules.h"
#include "core/graph/type.h"

namespace tessera {
namespace {

constexpr int64_t kLongSequence = 8192;           // From here on the sequence may be split.
constexpr int64_t kMostMicrobatchesPerStage = 8;  // The bubble is an eighth, and falls slowly.

constexpr int64_t kMostStages = 16;  // Each is planned; more take too long.

// Policies that Pax's recipes use; which of them differ depends on the model.
constexpr std::string_view kPolicies[] = {
    "save_everything",   "save_dot_only", "save_dot_except_logits_ffn1",
    "save_qkv_out_proj", "save_out_proj", "save_context_and_out_proj",
    "save_nothing"};

const ScheduleChoice kSchedules[] = {{"OneForwardOneBackward", 1},
                                     {"ZeroBubbleH1", 1},
                                     {"InterleavedOneForwardOneBackward", 2},
                                     {"InterleavedOneForwardOneBackward", 4}};

// A way to split a model, before sizes are chosen.
struct Rules {
  std::string strategy;
  RulesConfig config;
  AxisRules rules;
  std::vector<std::string> axis_names;
  std::vector<size_t> used;      // Axes that may have several devices,
  std::vector<size_t> required;  // and those that must.
};

std::set<std::string> mesh_axes(const std::vector<AxisRule>& rules) {
  std::set<std::string> names;
  for (const AxisRule& rule : rules) names.insert(rule.mesh.begin(), rule.mesh.end());
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether every rule that names `axis` names `other` too, and the other way round.
bool means_the_same(const AxisRules& rules, const std::string& axis, const std::string& other) {
  for (const auto* list : {&rules.weights, &rules.activations})
    for (const AxisRule& rule : *list)
      if (has(rule.mesh, axis) != has(rule.mesh, other)) return false;
  return true;
}

// Finds the axes that rules use. nullopt if the mesh lacks one.
std::optional<Rules> with_axes(Rules rules, const Recipe& recipe) {
  const std::set<std::string> weights = mesh_axes(rules.rules.weights);
  std::set<std::string> all = mesh_axes(rules.rules.activations);
  all.insert(weights.begin(), weights.end());
  for (const std::string& name : all)
    if (!has(rules.axis_names, name)) return std::nullopt;
  for (size_t i = 0; i < rules.axis_names.size(); ++i) {
    const std::string& name = rules.axis_names[i];
    if (!all.contains(name)) continue;
    bool is_double = false;
    for (size_t j = i + 1; j < rules.axis_names.size(); ++j)
      is_double = is_double || (all.contains(rules.axis_names[j]) &&
                                means_the_same(rules.rules, name, rules.axis_names[j]));
    if (is_double) continue;
    rules.used.push_back(i);
    if (rules.strategy.empty() || name == "replica") continue;
    // With one device along such an axis the strategy is another one of the list.
    const bool is_weights_only = name == "data" && rules.strategy != "pax" &&
                                 rules.strategy != "experts" && weights.contains(name);
    if (is_weights_only || (name != "data" && all.contains(name))) rules.required.push_back(i);
  }
  const bool splits_layers = weights.contains(std::string(kStageAxis));
  if (splits_layers && !recipe.has_stack && !rules.strategy.empty()) return std::nullopt;
  return rules;
}

bool suits(Strategy strategy, const Recipe& recipe) {
  const std::string context = "ctx";
  if (has(strategy_axes(strategy, {}), context))
    return recipe.seq_len >= kLongSequence || has(recipe.config.mesh.axis_names, context);
  return strategy != Strategy::kExperts || recipe.has_experts;
}

std::vector<Rules> all_rules(const Recipe& recipe) {
  std::vector<Rules> list;
  const auto add = [&](Rules rules) {
    rules.rules = make_rules(rules.config);
    for (const Rules& known : list)
      if (known.rules == rules.rules && known.axis_names == rules.axis_names) return;
    if (auto complete = with_axes(std::move(rules), recipe)) list.push_back(std::move(*complete));
  };
  // Named ones first: their names say more than "the recipe's rules".
  for (const auto& [strategy, name] : enum_names(Strategy{})) {
    if (!suits(strategy, recipe)) continue;
    add({.strategy = std::string(name),
         .config = strategy_rules(strategy),
         .axis_names = strategy_axes(strategy, recipe.config.mesh.axis_names)});
  }
  add({.config = recipe.config.rules, .axis_names = recipe.config.mesh.axis_names});
  return list;
}

// The groups of devices that share the batch.
int64_t batch_shards(const Rules& rules, const Mesh& mesh) {
  const Type batch =
      apply_rules(rules.rules.activations, mesh, make_type(DType::kI32, {{"batch", 1, {}}}));
  return mesh.size_along(batch.axes[0].split);
}

struct Shape {
  std::vector<int64_t> ici, dcn;
};

// Shapes of all axes with these numbers of devices within a slice and of slices.
std::vector<Shape> shapes(const Rules& rules, int64_t slice, int64_t slices) {
  std::vector<Shape> list;
  const size_t axes = rules.axis_names.size();
  for (const auto& within : factorizations(slice, rules.used.size()))
    for (const auto& across : factorizations(slices, rules.used.size())) {
      Shape shape{std::vector<int64_t>(axes, 1), std::vector<int64_t>(axes, 1)};
      for (size_t i = 0; i < rules.used.size(); ++i) {
        shape.ici[rules.used[i]] = within[i];
        shape.dcn[rules.used[i]] = across[i];
      }
      const bool is_other = std::ranges::any_of(
          rules.required, [&](size_t axis) { return shape.ici[axis] * shape.dcn[axis] == 1; });
      if (!is_other) list.push_back(std::move(shape));
    }
  return list;
}

std::vector<ScheduleChoice> schedules_for(const Recipe& recipe, int64_t stages) {
  if (stages == 1) return {{}};
  std::vector<ScheduleChoice> choices;
  if (recipe.has_schedule) choices.push_back({});
  for (const ScheduleChoice& each : kSchedules)
    if (recipe.layers % (stages * each.chunks) == 0) choices.push_back(each);
  if (choices.empty()) choices.push_back({});
  return choices;
}

std::vector<std::string> policies_for(const Recipe& recipe) {
  std::vector<std::string> policies = {recipe.remat_policy};
  for (const std::string_view each : kPolicies)
    if (each != recipe.remat_policy) policies.emplace_back(each);
  return policies;
}

// Adds what a layout can be combined with.
class Combinations {
 public:
  Combinations(const Recipe& recipe, const SpaceOptions& options, Space& space)
      : recipe_(recipe),
        space_(space),
        policies_(policies_for(recipe)),
        searches_state_dtype_(options.searches_state_dtype) {}

  void add(const Rules& rules, const Shape& shape) {
    Layout layout{rules.strategy, rules.config, rules.axis_names, shape.ici, shape.dcn};
    const auto is_one = [](int64_t size) { return size == 1; };
    if (recipe_.slices == 1 && std::ranges::all_of(shape.dcn, is_one)) layout.dcn.clear();
    const Mesh mesh = layout.mesh();
    const int64_t shards = batch_shards(rules, mesh);
    if (recipe_.global_batch % shards != 0) {
      ++space_
            .refused[fmt::format("a batch of {} sequences cannot be divided among {} groups of "
                                 "devices",
                                 recipe_.global_batch, shards)];
      return;
    }
    const int64_t stages = mesh.stages();
    if (stages > 1 && recipe_.layers % stages != 0) {
      ++space_.refused[fmt::format("{} layers cannot be divided among {} stages", recipe_.layers,
                                   stages)];
      return;
    }
    if (stages > kMostStages) {
      ++space_.refused[fmt::format("pipelines of more than {} stages are not searched, here {}",
                                   kMostStages, stages)];
      return;
    }
    for (const int64_t microbatches : microbatch_choices(recipe_, shards)) {
      if (stages > 1 && (microbatches == 1 || (microbatches > kMostMicrobatchesPerStage * stages &&
                                               microbatches != recipe_.microbatches)))
        continue;
      for (const ScheduleChoice& schedule : schedules_for(recipe_, stages))
        add_policies({.layout = layout, .microbatches = microbatches, .schedule = schedule});
    }
  }

 private:
  void add_policies(Candidate candidate) {
    for (const std::string& policy : policies_) {
      candidate.remat_policy = policy;
      candidate.state = {};
      space_.candidates.push_back(candidate);
      if (!searches_state_dtype_ || recipe_.smaller_state.settings.empty()) continue;
      candidate.state = recipe_.smaller_state.settings;
      space_.candidates.push_back(candidate);
    }
  }

  const Recipe& recipe_;
  Space& space_;
  std::vector<std::string> policies_;
  bool searches_state_dtype_;
};

std::string shape_text(const std::vector<int64_t>& sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ","));
}

}  // namespace

Mesh Layout::mesh() const {
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < axis_names.size(); ++i)
    axes.push_back({axis_names[i], ici[i], dcn.empty() ? 1 : dcn[i]});
  return Mesh(std::move(axes));
}

std::string Layout::text() const {
  std::string text = strategy.empty() ? "as given" : strategy;
  const Mesh its_mesh = mesh();
  for (const MeshAxis& axis : its_mesh.axes()) {
    if (axis.size() == 1) continue;
    text += fmt::format(" {}={}", axis.name, axis.ici);
    if (axis.dcn > 1) text += fmt::format("x{}", axis.dcn);
  }
  return text;
}

std::string Candidate::text() const {
  std::string text = layout.text();
  if (microbatches > 1) text += fmt::format(", {} microbatches", microbatches);
  if (!schedule.name.empty()) text += ", " + schedule.name;
  if (schedule.chunks > 1) text += fmt::format(" of {}", schedule.chunks);
  text += ", " + remat_policy;
  if (!state.empty()) text += ", state in bf16";
  return text;
}

std::vector<std::string> settings_of(const Candidate& candidate, SettingStyle style) {
  const Layout& layout = candidate.layout;
  std::vector<std::string> sets;
  if (!layout.strategy.empty() && style == SettingStyle::kKnobs) {
    sets.push_back("strategy=" + layout.strategy);
  } else if (!layout.strategy.empty()) {
    sets.push_back("rules.weights=" + layout.rules.weights);
    sets.push_back("rules.activations=" + layout.rules.activations);
    sets.push_back(fmt::format("mesh.axis_names=[{}]", fmt::join(layout.axis_names, ",")));
  }
  if (!layout.ici.empty()) sets.push_back("mesh.ici_mesh_shape=" + shape_text(layout.ici));
  if (!layout.dcn.empty()) sets.push_back("mesh.dcn_mesh_shape=" + shape_text(layout.dcn));
  sets.push_back(fmt::format("task.train.num_microbatches={}", candidate.microbatches));
  if (!candidate.schedule.name.empty())
    sets.push_back("task.train.pipeline_schedule=" + candidate.schedule.name);
  if (candidate.schedule.chunks > 1)
    sets.push_back(
        fmt::format("task.train.pipeline_schedule.chunks={}", candidate.schedule.chunks));
  sets.push_back("task.train.remat_policy=" + candidate.remat_policy);
  sets.insert(sets.end(), candidate.state.begin(), candidate.state.end());
  return sets;
}

std::vector<int64_t> microbatch_choices(const Recipe& recipe, int64_t shards) {
  const int64_t rows = recipe.global_batch / shards;
  std::set<int64_t> choices = {rows};
  for (int64_t number = 1; number <= rows && rows % number == 0; number *= 2)
    choices.insert(number);
  if (rows % recipe.microbatches == 0) choices.insert(recipe.microbatches);
  return {choices.begin(), choices.end()};
}

std::vector<std::vector<int64_t>> factorizations(int64_t number, size_t axes) {
  std::vector<std::vector<int64_t>> all;
  if (axes == 0 && number == 1) all.emplace_back();
  if (axes == 0) return all;
  if (axes == 1) return {{number}};
  for (int64_t first = 1; first <= number; ++first) {
    if (number % first != 0) continue;
    for (std::vector<int64_t> rest : factorizations(number / first, axes - 1)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  }
  return all;
}

Space list_candidates(const Recipe& recipe, const SpaceOptions& options) {
  Space space;
  Combinations combinations(recipe, options, space);
  const std::vector<Rules> rules = all_rules(recipe);
  for (const int64_t devices : options.devices) {
    int64_t slice =
        options.slice.value_or(recipe.slices > 1 ? recipe.devices / recipe.slices : devices);
    slice = std::min(slice, devices);
    if (devices % slice != 0)
      fail(
          "{} devices cannot be divided among slices of {}; the nearest multiple is {}, or give "
          "--search_slice=N, the devices that have fast links to each other",
          devices, slice, nearest_multiple(devices, slice));
    for (const Rules& each : rules)
      for (const Shape& shape : shapes(each, slice, devices / slice)) combinations.add(each, shape);
  }
  return space;
}

bool are_neighbours(const Candidate& a, const Candidate& b) {
  if (a.layout.axis_names != b.layout.axis_names || a.layout.devices() != b.layout.devices())
    return false;
  int64_t differing = 0;  // Mesh axes.
  const auto dcn = [](const Layout& layout, size_t i) {
    return layout.dcn.empty() ? 1 : layout.dcn[i];
  };
  for (size_t i = 0; i < a.layout.ici.size(); ++i)
    if (a.layout.ici[i] != b.layout.ici[i] || dcn(a.layout, i) != dcn(b.layout, i)) ++differing;
  const bool same_rules = a.layout.strategy == b.layout.strategy;
  if (same_rules && differing == 0) return true;
  const bool same_work = a.microbatches == b.microbatches && a.remat_policy == b.remat_policy &&
                         a.state == b.state && a.schedule.name == b.schedule.name &&
                         a.schedule.chunks == b.schedule.chunks;
  return same_work && differing == (same_rules ? 2 : 0);
}

}  // namespace tessera
