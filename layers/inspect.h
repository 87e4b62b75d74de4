// SPDX-License-Identifier: Apache-2.0
// Prints statistics of tensors in layers while a model trains:
//
//   inspect(scores, "scores");
//
// prints the shape of `scores`, its mean, deviation and extremes, and the shares of its elements
// that are zero and that are not finite, in every N-th step of `runexp --inspect=N`. Without that
// flag it traces nothing (docs/layers.md, "Looking at values").
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/trace.h"

namespace tessera {

// Inspects x, in any fprop, as add_metric() does (layers/summaries.h). Error if x is not of
// numbers, if the name is not lower-case letters, digits and '_', or if the layer has used it
// before.
void inspect(Operand x, std::string_view name);

// inspect() traces something while one is alive.
class InspectScope {
  ScopedTraceState<&TraceState::inspects> inspects_{true};
};

// The statistics of one tensor, in all its microbatches and shards. Mean, deviation and extremes
// are those of its finite elements; NaN if it has none.
struct Inspected {
  std::string name;  // "lm.transformer.x_layers[1].ffn.scores"
  std::string type;  // bf16["batch/data=32 seq=128"]
  double mean = 0, deviation = 0, least = 0, greatest = 0;
  double zeros = 0, nonfinite = 0;  // Shares of all elements.
};
std::string text_of(const Inspected& inspected);

// Returns the statistics in the sum of a metric that is_inspected() (layers/summaries.h), for all
// layers. The type of the sum has an axis for each loop around inspect().
std::vector<Inspected> inspected_values(const std::string& metric, const Type& sum,
                                        std::span<const double> elements);

}  // namespace tessera
