// SPDX-License-Identifier: Apache-2.0
#include "core/ops/associative_scan.h"

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

Tensors slices(const Tensors& all, const std::string& axis, int64_t begin, int64_t end) {
  Tensors parts;
  for (const Tensor& each : all) parts.push_back(slice(each, axis, begin, end));
  return parts;
}

Tensors concatenated(const Tensors& first, const Tensors& second, const std::string& axis) {
  Tensors all;
  for (size_t i = 0; i < first.size(); ++i) all.push_back(concat({first[i], second[i]}, axis));
  return all;
}

// Returns the elements at even and at odd positions of an axis of even size.
std::pair<Tensors, Tensors> by_parity(const Tensors& all, const std::string& axis,
                                      const std::string& pair) {
  std::pair<Tensors, Tensors> parts;
  for (const Tensor& each : all) {
    const Tensors two =
        unbind(split_axis(each, axis, {axis, each.size(axis) / 2, {}}, {pair, 2, {}}), pair);
    parts.first.push_back(two[0]);
    parts.second.push_back(two[1]);
  }
  return parts;
}

// Interleaves elements: the inverse of by_parity.
Tensor interleaved(const Tensor& even, const Tensor& odd, const std::string& axis,
                   const std::string& pair) {
  std::string order;
  for (const std::string& name : even.type().names())
    order += (order.empty() ? "" : " ") + name + (name == axis ? " " + pair : "");
  const Tensors both = {broadcast(even, {{pair, 1, {}}}, order),
                        broadcast(odd, {{pair, 1, {}}}, order)};
  return merge_axes(concat(both, pair), axis, pair, axis);
}

Tensors scanned(const Combine& combine, const Tensors& all, const std::string& axis,
                const std::string& pair) {
  const int64_t size = all[0].size(axis), half = size / 2;
  if (size == 1) return all;
  if (size % 2 != 0) {
    const Tensors before = scanned(combine, slices(all, axis, 0, size - 1), axis, pair);
    const Tensors last =
        combine(slices(before, axis, size - 2, size - 1), slices(all, axis, size - 1, size));
    return concatenated(before, last, axis);
  }
  const auto [even, odd] = by_parity(all, axis, pair);
  const Tensors at_odd = scanned(combine, combine(even, odd), axis, pair);
  // The result before each even position, except the first, is known.
  Tensors at_even = slices(even, axis, 0, 1);
  if (half > 1)
    at_even = concatenated(
        at_even, combine(slices(at_odd, axis, 0, half - 1), slices(even, axis, 1, half)), axis);
  Tensors results;
  for (size_t i = 0; i < all.size(); ++i)
    results.push_back(interleaved(at_even[i], at_odd[i], axis, pair));
  return results;
}

}  // namespace

Tensors associative_scan(const Combine& combine, const Tensors& elements, std::string_view axis,
                         SourceSite site) {
  for (const Tensor& each : elements)
    if (!each.type().axis(axis).split.empty())
      fail("{}: associative_scan: {} is split; pass whole_along(x, \"{}\")", site.text(), axis,
           axis);
  const SiteScope from(site);
  const Combine checked = [&](const Tensors& earlier, const Tensors& later) {
    Tensors results = combine(earlier, later);
    if (results.size() != elements.size())
      fail("{}: associative_scan: the function returns {} tensors, expected {}", site.text(),
           results.size(), elements.size());
    return results;
  };
  if (elements.empty()) fail("{}: associative_scan: no elements are given", site.text());
  return scanned(checked, elements, std::string(axis), std::string(axis) + "_pair");
}

}  // namespace tessera
