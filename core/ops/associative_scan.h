// SPDX-License-Identifier: Apache-2.0
// Running results of an associative function along an axis, such as linear recurrences. The
// function is traced on halves, quarters and so on of the axis; there is no op and no kernel.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Combines elements with later ones, position by position of the axis.
using Combine = std::function<std::vector<Tensor>(const std::vector<Tensor>& earlier,
                                                  const std::vector<Tensor>& later)>;

// Returns tensors of the same types as `elements`: position t of `axis` has the combination of
// elements 0 to t, in their order. The linear recurrence h_t = a_t·h_{t-1} + b_t of elements (a, b)
// has h as the second result:
//   associative_scan([](const auto& x, const auto& y) -> std::vector<Tensor> {
//     return {x[0] * y[0], y[0] * x[1] + y[1]};
//   }, {a, b}, "seq")
//
// It calls `combine` at most three times for each halving of the axis, on at most 2·size positions
// together (Blelloch, 1990). Error if the axis is split.
std::vector<Tensor> associative_scan(const Combine& combine, const std::vector<Tensor>& elements,
                                     std::string_view axis,
                                     SourceSite site = SourceSite::current());

}  // namespace tessera
