// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/array_difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/devices/reference/array.h"
#include "core/runtime/executor/launch_trace.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

// The difference of two values that differ; infinite if it is NaN.
double absolute_difference(double here, double there) {
  const double difference = std::abs(here - there);
  return std::isnan(difference) ? kInfinity : difference;
}

double relative_difference(double here, double there) {
  const double absolute = absolute_difference(here, there);
  if (std::isinf(absolute)) return kInfinity;
  return absolute == 0 ? 0 : absolute / std::max(std::abs(here), std::abs(there));
}

constexpr uint64_t kFirst = 0x87c37b91114253d5u, kSecond = 0x4cf5ad432745937fu;
constexpr size_t kBlock = 16;

uint64_t mixed_first(uint64_t word) { return std::rotl(word * kFirst, 31) * kSecond; }
uint64_t mixed_second(uint64_t word) { return std::rotl(word * kSecond, 33) * kFirst; }

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

std::optional<ArrayDifference> array_difference(const Type& type, std::span<const std::byte> here,
                                                std::span<const std::byte> there,
                                                double tolerance) {
  CHECK(here.size() == there.size() && std::ssize(here) == type.bytes());
  if (std::ranges::equal(here, there)) return std::nullopt;
  const std::vector<double> ours = decode_values(type, here.data());
  const std::vector<double> others = decode_values(type, there.data());
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  const bool by_bits = tolerance == 0 || !is_floating(type.dtype);
  const double most =
      by_bits ? 0 : tolerance * std::max(largest_magnitude(ours), largest_magnitude(others));
  const auto differs = [&](size_t i) {
    if (by_bits) return std::memcmp(&here[i * width], &there[i * width], width) != 0;
    if (std::isnan(ours[i]) && std::isnan(others[i])) return false;
    return ours[i] != others[i] && absolute_difference(ours[i], others[i]) > most;
  };
  ArrayDifference found{.elements = std::ssize(ours)};
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!differs(i)) continue;
    if (found.different++ == 0) {
      found.index = index_of(type, static_cast<int64_t>(i));
      found.here = ours[i];
      found.there = others[i];
    }
    found.largest_absolute =
        std::max(found.largest_absolute, absolute_difference(ours[i], others[i]));
    found.largest_relative =
        std::max(found.largest_relative, relative_difference(ours[i], others[i]));
  }
  return found.different == 0 ? std::nullopt : std::optional(found);
}

std::string text_of(const ArrayDifference& difference) {
  const std::string which =
      difference.index.empty()
          ? std::string("it is")
          : fmt::format("{} of {} elements differ; the first, [{}], is", difference.different,
                        difference.elements, fmt::join(difference.index, ", "));
  return fmt::format("{} {:.9g} here, {:.9g} there", which, difference.here, difference.there);
}

std::string extent_of(const ArrayDifference& difference) {
  return fmt::format("largest difference {:.3g}, relative {:.3g}", difference.largest_absolute,
                     difference.largest_relative);
}

uint64_t hashed_bits(uint64_t bits) {
  bits = (bits ^ (bits >> 33)) * 0xff51afd7ed558ccdu;
  bits = (bits ^ (bits >> 33)) * 0xc4ceb9fe1a85ec53u;
  return bits ^ (bits >> 33);
}

std::string array_hash(std::span<const std::byte> bytes) {
  uint64_t first = 0, second = 0;
  uint64_t words[2];
  size_t at = 0;
  for (; at + kBlock <= bytes.size(); at += kBlock) {
    std::memcpy(words, bytes.data() + at, kBlock);
    first = (std::rotl(first ^ mixed_first(words[0]), 27) + second) * 5 + 0x52dce729u;
    second = (std::rotl(second ^ mixed_second(words[1]), 31) + first) * 5 + 0x38495ab5u;
  }
  words[0] = words[1] = 0;
  if (at < bytes.size()) std::memcpy(words, bytes.data() + at, bytes.size() - at);
  second ^= mixed_second(words[1]);
  first ^= mixed_first(words[0]);

  first ^= bytes.size();
  second ^= bytes.size();
  first += second;
  second += first;
  first = hashed_bits(first);
  second = hashed_bits(second);
  first += second;
  second += first;
  return fmt::format("{:016x}{:016x}", first, second);
}

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
