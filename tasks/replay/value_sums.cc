// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/value_sums.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/runtime/executor/launch_trace.h"
#include "tasks/replay/array_difference.h"

namespace tessera {
namespace {

constexpr size_t kMostListed = 5;

uint64_t sum_of_hashes(std::span<const std::byte> bytes, size_t element) {
  CHECK(element > 0 && element <= sizeof(uint64_t));
  uint64_t sum = 0;
  for (size_t at = 0; at + element <= bytes.size(); at += element) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, element);
    sum += hashed_bits(bits + 1);  // The hash of 0 is 0.
  }
  return sum;
}

}  // namespace

// With k copies of each element, k and the sum have the same factor.
bool same_elements(const ValueSum& a, const ValueSum& b) {
  return a.sum * b.elements == b.sum * a.elements;
}

std::string value_name(const ListedLaunch& launch, size_t output) {
  const Node& node = *launch.node;
  const Type& type = launch.graph->type(node.outputs[output]);
  return fmt::format("{} [{}] {}, output {}, {}[{}]", launch_name(node, LaunchKind::kRun),
                     phase_name(node.phase), place_line(launch), output, dtype_name(type.dtype),
                     fmt::join(type.names(), " "));
}

void ValueSums::add(const ListedLaunch& launch, const ArrayBytesList& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto element =
        static_cast<size_t>(dtype_bytes(launch.graph->type(launch.node->outputs[i]).dtype));
    const uint64_t sum = sum_of_hashes(outputs[i], element);
    const std::string name = value_name(launch, i);
    const std::lock_guard lock(mutex_);
    ValueSum& all = by_name_[name];
    all.elements += outputs[i].size() / element;
    all.sum += sum;
  }
}

MeshComparison compared_meshes(const std::vector<const LaunchList*>& lists,
                               const std::map<std::string, ValueSum>& here,
                               const std::map<std::string, ValueSum>& there) {
  MeshComparison result;
  std::set<std::string> seen;
  const auto compare = [&](const std::string& name) {
    const auto ours = here.find(name), theirs = there.find(name);
    if (ours == here.end() || !seen.insert(name).second) return;
    if (theirs == there.end()) {
      ++result.only_here;
      return;
    }
    ++result.compared;
    if (!same_elements(ours->second, theirs->second)) result.different.push_back(name);
  };
  for (const LaunchList* list : lists)
    for (const ListedLaunch& launch : list->launches())
      for (size_t i = 0; i < launch.node->outputs.size(); ++i) compare(value_name(launch, i));
  result.only_there = std::ssize(there) - result.compared;
  return result;
}

std::string MeshComparison::text() const {
  const std::string rest = fmt::format(
      "not compared: {} values that only this mesh has and {} of the other one: parts of sums, and "
      "what is moved between devices\n",
      only_here, only_there);
  if (compared == 0)
    return "different: the two sides have no value in common; they ran other programs\n" + rest;
  if (different.empty())
    return fmt::format("equal: {} values have the same bits on both meshes\n", compared) + rest;
  std::string text = fmt::format("first difference: {}\n", different.front());
  if (different.size() == 1)
    text += fmt::format("the other {} values have the same bits on both meshes\n", compared - 1);
  else
    text += fmt::format("of {} values {} more differ, next:\n", compared, different.size() - 1);
  for (size_t i = 1; i < std::min(different.size(), kMostListed + 1); ++i)
    text += "  " + different[i] + "\n";
  return text + rest;
}

}  // namespace tessera
