// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tests/composition/composition.h"
#include "tests/composition/features.h"
#include "tests/composition/meshes.h"
#include "tests/support/chance.h"

namespace tessera {
namespace {

constexpr int64_t kMostDevices = 16;

template <typename T>
T number_in(std::string_view text) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    fail("a composition: expected a number, got '{}'", text);
  return number;
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

AxisUse parse_axis(const std::string& text) {
  const size_t colon = text.find(':'), slash = text.find('/');
  if (colon == std::string::npos) fail("a mesh axis is role:size, got '{}'", text);
  const std::string size = text.substr(colon + 1, slash - std::min(slash, colon + 1));
  return {std::string(role(text.substr(0, colon)).name), number_in<int64_t>(size),
          slash != std::string::npos};
}

std::string axis_text(const AxisUse& use) {
  return fmt::format("{}:{}{}", use.role, use.size, use.slices ? "/slices" : "");
}

std::vector<std::string> drawn_features(Chance& chance) {
  std::vector<size_t> order(features().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  chance.shuffle(order);
  const int64_t wanted = 2 + chance.below(8);
  std::set<std::string_view> groups;
  std::set<size_t> chosen;
  // Twice, so that a feature that needs another may come before it.
  for (int round = 0; round < 2; ++round)
    for (const size_t i : order) {
      const Feature& each = features()[i];
      const bool fits = std::ssize(chosen) < wanted && !chosen.contains(i) &&
                        (each.group.empty() || !groups.contains(each.group)) &&
                        (each.needs.empty() || groups.contains(each.needs));
      if (!fits) continue;
      chosen.insert(i);
      groups.insert(each.group);
    }
  std::vector<std::string> names;
  for (const size_t i : chosen) names.emplace_back(features()[i].name);
  return names;
}

bool has_one_of(const Composition& composition, std::string_view group) {
  return std::ranges::any_of(composition.features,
                             [&](const std::string& name) { return feature(name).group == group; });
}

void draw_stages(Chance& chance, Composition& composition) {
  composition.stages = chance.one_of<int64_t>({2, 2, 3, 4});
  const ScheduleRow& row = chance.one_of(schedules());
  composition.schedule = row.name;
  const int64_t pieces = composition.stages * row.chunks;
  composition.layers = pieces;
  if (pieces <= 4 && chance.one_in(3)) composition.layers += 1 + chance.below(pieces);
  if (!row.takes_any_number) std::erase(composition.features, "uneven_microbatches");
  if (!composition.has("repeated")) composition.features.emplace_back("repeated");
  if (!has_one_of(composition, "microbatches")) composition.features.emplace_back("microbatches");
}

void draw_mesh(Chance& chance, Composition& composition) {
  const bool has_experts = has_one_of(composition, "experts");
  std::vector<std::string> names;
  for (const Role& each : roles())
    if (each.name != "experts" || has_experts) names.emplace_back(each.name);
  if (has_experts) names.insert(names.end(), 3, "experts");
  if (chance.one_in(4)) names = {std::string(kRandomRole)};
  const int64_t axes = (composition.stages > 1 ? 0 : 1) + chance.below(3);
  for (int64_t i = 0; i < axes; ++i) {
    const int64_t size = chance.one_of<int64_t>({2, 2, 2, 2, 3, 4, 4, 8});
    if (composition.devices() * size > kMostDevices) continue;
    composition.mesh.push_back({chance.one_of(names), size, size % 2 == 0 && chance.one_in(5)});
  }
}

void order_features(std::vector<std::string>& names) {
  for (const std::string& name : names) feature(name);  // Error for unknown ones.
  std::ranges::sort(names, {}, [](const std::string& name) { return &feature(name); });
}

}  // namespace

bool Composition::has(std::string_view name) const {
  return std::ranges::find(features, name) != features.end();
}

int64_t Composition::devices() const {
  int64_t devices = stages;
  for (const AxisUse& use : mesh) devices *= use.size;
  return devices;
}

std::string Composition::text() const {
  std::vector<std::string> axes;
  for (const AxisUse& use : mesh) axes.push_back(axis_text(use));
  std::string text = fmt::format("seed={} layers={} features={} mesh={}", seed, layers,
                                 fmt::join(features, ","), fmt::join(axes, ","));
  return stages == 1 ? text : fmt::format("{} stages={}:{}", text, stages, schedule);
}

Composition parse_composition(std::string_view text) {
  if (text.find('=') == std::string_view::npos) return drawn_composition(number_in<uint32_t>(text));
  Composition composition;
  for (const std::string& word : parts_of(text, ' ')) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "seed") {
      composition.seed = number_in<uint32_t>(value);
    } else if (key == "layers") {
      composition.layers = number_in<int64_t>(value);
    } else if (key == "features") {
      composition.features = parts_of(value, ',');
      order_features(composition.features);
    } else if (key == "mesh") {
      for (const std::string& axis : parts_of(value, ','))
        composition.mesh.push_back(parse_axis(axis));
    } else if (key == "stages") {
      const size_t colon = value.find(':');
      composition.stages = number_in<int64_t>(value.substr(0, colon));
      composition.schedule = schedule(value.substr(colon + 1)).name;
    } else {
      fail("a composition has no '{}'{}", key,
           did_you_mean(key, {"seed", "layers", "features", "mesh", "stages"}));
    }
  }
  return composition;
}

Composition drawn_composition(uint32_t number) {
  Chance chance(number * 2654435761u + 1);
  Composition composition{.seed = number};
  composition.features = drawn_features(chance);
  if (chance.one_in(4)) draw_stages(chance, composition);
  draw_mesh(chance, composition);
  order_features(composition.features);
  return composition;
}

std::vector<Composition> smaller(const Composition& composition) {
  std::vector<Composition> all;
  const auto add = [&](auto change) {
    Composition candidate = composition;
    change(candidate);
    if (!(candidate == composition)) all.push_back(std::move(candidate));
  };
  add([](Composition& c) { c.stages = 1, c.schedule = ""; });
  for (size_t i = 0; i < composition.mesh.size(); ++i) {
    add([&](Composition& c) { c.mesh.erase(c.mesh.begin() + static_cast<int64_t>(i)); });
    add([&](Composition& c) { c.mesh[i].slices = false; });
    if (composition.mesh[i].size > 2) add([&](Composition& c) { c.mesh[i].size = 2; });
  }
  for (size_t i = 0; i < composition.features.size(); ++i)
    add([&](Composition& c) { c.features.erase(c.features.begin() + static_cast<int64_t>(i)); });
  if (composition.stages == 1) add([](Composition& c) { c.layers = 1; });
  return all;
}

}  // namespace tessera
