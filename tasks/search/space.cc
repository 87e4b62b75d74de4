// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/space.h"

#include <algorithm>
#include <functional>
#include <numeric>
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

// The type of the global batch, with the axes that divide it.
Type batch_type(const Recipe& recipe, const AxisRules& rules, const Mesh& mesh) {
  return apply_rules(rules.activations, mesh,
                     make_type(DType::kI32, {{"batch", recipe.global_batch, {}}}));
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

// The element nearest to `value`, by ratio.
int64_t nearest_of(const std::vector<int64_t>& sorted, int64_t value) {
  const auto distance = [value](int64_t each) {
    return static_cast<double>(std::max(each, value)) / static_cast<double>(std::min(each, value));
  };
  return *std::ranges::min_element(sorted, {}, distance);
}

bool is_prime(int64_t number) {
  for (int64_t factor = 2; factor * factor <= number; ++factor)
    if (number % factor == 0) return false;
  return number > 1;
}

// Whether one of the sizes is the other one times a prime number.
bool differ_by_prime(int64_t a, int64_t b) {
  return std::max(a, b) % std::min(a, b) == 0 && is_prime(std::max(a, b) / std::min(a, b));
}

std::string mesh_shape_text(const std::vector<int64_t>& sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ","));
}

constexpr size_t kMostParts = 5;         // Numbers that a line lists.
constexpr double kLittlePadding = 1.02;  // Factor on a size that costs little time.

std::string parts_text(const std::vector<int64_t>& parts) {
  if (parts.size() <= kMostParts) return fmt::format("{}", fmt::join(parts, ", "));
  return fmt::format("{}, {}, ..., {}", parts[0], parts[1], parts.back());
}

// The least size above `size` that the smallest of `parts` divides, and as many others as little
// padding permits; and these.
std::pair<int64_t, std::vector<int64_t>> padded(int64_t size, const std::set<int64_t>& parts) {
  int64_t common = 1, result = 0;
  std::vector<int64_t> included;
  for (const int64_t part : parts) {
    common = std::lcm(common, part);
    const int64_t next = (size + common - 1) / common * common;
    const bool is_little = static_cast<double>(next) <= kLittlePadding * static_cast<double>(size);
    if (!included.empty() && !is_little && next != result) break;
    included.push_back(part);
    result = next;
  }
  return {result, included};
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
  if (!layout.ici.empty()) sets.push_back("mesh.ici_mesh_shape=" + mesh_shape_text(layout.ici));
  if (!layout.dcn.empty()) sets.push_back("mesh.dcn_mesh_shape=" + mesh_shape_text(layout.dcn));
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

int64_t stored_bytes(const Recipe& recipe, const Layout& layout,
                     const std::vector<std::string>& state) {
  const Mesh mesh = layout.mesh();
  const AxisRules rules = make_rules(layout.rules);
  int64_t bytes = 0;
  for (const Parameter& like : recipe.stored_with(state)) {
    if (!like.layout.empty()) continue;  // Its own layout; rare, so it is not counted.
    if (mesh.stages() > 1 && like.stack == 0) continue;  // Not on each stage.
    bytes += local_type(stored_type(like, rules, mesh), mesh).bytes();
  }
  return bytes;
}

Space::Space(const Recipe& recipe, const SpaceOptions& options)
    : recipe_(recipe), searches_state_dtype_(options.searches_state_dtype) {
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
      for (const Shape& shape : shapes(each, slice, devices / slice)) {
        Layout layout{each.strategy, each.config, each.axis_names, shape.ici, shape.dcn};
        const auto is_one = [](int64_t size) { return size == 1; };
        if (recipe.slices == 1 && std::ranges::all_of(shape.dcn, is_one)) layout.dcn.clear();
        if (!is_possible(layout)) continue;
        layout.stored = stored_bytes(recipe, layout, states().back());
        layouts_.push_back(std::move(layout));
      }
  }
}

// Whether the layout is possible. Notes all reasons why it is not.
bool Space::is_possible(const Layout& layout) {
  const Mesh mesh = layout.mesh();
  exclusions_.consider(mesh);
  const AxisRules rules = make_rules(layout.rules);
  std::map<std::string, std::pair<Axis, std::string>> undivided;  // And where the axis is.
  const auto check = [&](const std::vector<Axis>& axes, const std::string& where) {
    for (const Axis& axis : axes)
      if (axis.size % mesh.size_along(axis.split) != 0)
        undivided.try_emplace(axis.name, axis, where);
  };
  check(batch_type(recipe_, rules, mesh).axes, "");
  if (mesh.stages() > 1) check({{"layers", recipe_.layers, {std::string(kStageAxis)}}}, "");
  for (const Parameter& like : recipe_.stored)
    check(stored_type(like, rules, mesh).axes, like.path);
  for (const auto& [name, found] : undivided) {
    const auto& [axis, where] = found;
    exclusions_.add(name == "batch" ? "global_batch_size" : name, where, axis.size,
                    fmt::format("{}", fmt::join(axis.split, "*")), mesh.size_along(axis.split));
  }
  const bool is_long = mesh.stages() > kMostStages;
  if (is_long)
    exclusions_.add(fmt::format("pipelines of more than {} stages are not searched", kMostStages));
  return undivided.empty() && !is_long;
}

std::vector<int64_t> Space::microbatches(const Layout& layout) const {
  const Mesh mesh = layout.mesh();
  const Type batch = batch_type(recipe_, make_rules(layout.rules), mesh);
  const int64_t rows = local_type(batch, mesh).axes[0].size, stages = mesh.stages();
  std::set<int64_t> choices = {rows};
  for (int64_t number = 1; number <= rows && rows % number == 0; number *= 2)
    choices.insert(number);
  if (stages > 1)
    std::erase_if(choices, [&](int64_t number) {
      return number == 1 || number > kMostMicrobatchesPerStage * stages;
    });
  if (rows % recipe_.microbatches == 0 && (stages == 1 || recipe_.microbatches > 1))
    choices.insert(recipe_.microbatches);
  return {choices.begin(), choices.end()};
}

std::vector<ScheduleChoice> Space::schedules(const Layout& layout) const {
  const int64_t stages = layout.stages();
  if (stages == 1) return {{}};
  std::vector<ScheduleChoice> choices;
  if (recipe_.has_schedule) choices.push_back({});
  for (const ScheduleChoice& each : kSchedules)
    if (recipe_.layers % (stages * each.chunks) == 0) choices.push_back(each);
  if (choices.empty()) choices.push_back({});
  return choices;
}

// Settings of the optimizer's state.
std::vector<std::vector<std::string>> Space::states() const {
  if (!searches_state_dtype_ || recipe_.smaller_state.settings.empty()) return {{}};
  return {{}, recipe_.smaller_state.settings};
}

std::vector<Candidate> Space::candidates(const Layout& layout) const {
  std::vector<Candidate> list;
  for (const int64_t number : microbatches(layout))
    for (const ScheduleChoice& schedule : schedules(layout))
      for (const std::string& policy : recipe_.remat_policies)
        for (const std::vector<std::string>& state : states())
          list.push_back({layout, number, schedule, policy, state});
  return list;
}

std::optional<Candidate> Space::moved(Candidate candidate, const Layout& layout) const {
  candidate.layout = layout;
  const std::vector<int64_t> numbers = microbatches(layout);
  if (numbers.empty()) return std::nullopt;
  candidate.microbatches = nearest_of(numbers, candidate.microbatches);
  const std::vector<ScheduleChoice> its_schedules = schedules(layout);
  if (std::ranges::find(its_schedules, candidate.schedule) == its_schedules.end())
    candidate.schedule = its_schedules.front();
  return candidate;
}

std::optional<Candidate> Space::start(const Layout& layout) const {
  return moved({layout, recipe_.microbatches, {}, recipe_.remat_policy, {}}, layout);
}

std::vector<Candidate> Space::neighbours(const Candidate& of) const {
  std::vector<Candidate> list;
  const auto vary = [&](const auto& choices, auto Candidate::*choice) {
    for (const auto& each : choices) {
      list.push_back(of);
      list.back().*choice = each;
    }
  };
  const std::vector<int64_t> numbers = microbatches(of.layout);
  const auto at = std::ranges::find(numbers, of.microbatches);
  const std::vector<int64_t> near(at == numbers.begin() ? at : at - 1,
                                  std::min(at + 2, numbers.end()));
  vary(near, &Candidate::microbatches);
  vary(schedules(of.layout), &Candidate::schedule);
  vary(recipe_.remat_policies, &Candidate::remat_policy);
  vary(states(), &Candidate::state);
  // Layouts with another number of stages come last: pipelines take longer to plan.
  for (const bool same_stages : {true, false})
    for (const Layout& layout : layouts_) {
      if ((layout.stages() == of.layout.stages()) != same_stages || !are_near(layout, of.layout))
        continue;
      if (auto there = moved(of, layout)) list.push_back(std::move(*there));
    }
  return list;
}

std::optional<Candidate> Space::more_microbatches(Candidate candidate) const {
  for (const int64_t number : microbatches(candidate.layout)) {
    if (number <= candidate.microbatches) continue;
    candidate.microbatches = number;
    return candidate;
  }
  return std::nullopt;
}

bool are_near(const Layout& a, const Layout& b) {
  const Mesh one = a.mesh(), other = b.mesh();
  std::set<std::string> names(a.axis_names.begin(), a.axis_names.end());
  names.insert(b.axis_names.begin(), b.axis_names.end());
  const auto axis_of = [](const Mesh& mesh, const std::string& name) {
    for (const MeshAxis& axis : mesh.axes())
      if (axis.name == name) return axis;
    return MeshAxis{name, 1, 1};
  };
  if (one.num_devices() != other.num_devices()) return false;
  int64_t differing = 0;
  for (const std::string& name : names) {
    const MeshAxis x = axis_of(one, name), y = axis_of(other, name);
    if (x.ici == y.ici && x.dcn == y.dcn) continue;
    ++differing;
    if (x.ici != y.ici && !differ_by_prime(x.ici, y.ici)) return false;
    if (x.dcn != y.dcn && !differ_by_prime(x.dcn, y.dcn)) return false;
  }
  return differing == 2 || (differing == 0 && a.strategy != b.strategy);
}

void Exclusions::consider(const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.axes())
    if (axis.size() > 1) tried_[axis.name].insert(axis.size());
}

void Exclusions::add(const std::string& what, const std::string& where, int64_t size,
                     const std::string& by, int64_t parts) {
  Size& entry = sizes_[{what, by, size}];
  if (entry.where.empty()) entry.where = where;
  entry.parts.insert(parts);
  ++entry.layouts;
}

std::vector<LeftOut> Exclusions::groups() const {
  std::vector<LeftOut> list;
  for (const auto& [reason, layouts] : others_) list.push_back({layouts, reason});
  for (const auto& [key, of] : sizes_) {
    const auto [size, included] = padded(key.size, of.parts);
    std::string text = fmt::format("{}={}{} cannot be divided among {}={}", key.what, key.size,
                                   of.where.empty() ? "" : " (" + of.where + ")", key.by,
                                   parts_text({of.parts.begin(), of.parts.end()}));
    const auto tried = tried_.find(key.by);
    if (tried != tried_.end() && tried->second == of.parts)
      text += fmt::format(", so nothing is split over {}", key.by);
    text += key.what == "vocab" ? fmt::format("; a vocabulary padded to {} can", size)
                                : fmt::format("; {}={} can", key.what, size);
    if (included.size() < of.parts.size()) text += " among " + parts_text(included);
    list.push_back({of.layouts, std::move(text)});
  }
  std::ranges::stable_sort(list, std::greater<>(), &LeftOut::count);
  return list;
}

}  // namespace tessera
