// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/exclusions.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

namespace tessera {
namespace {

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
