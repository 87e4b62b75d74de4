// SPDX-License-Identifier: Apache-2.0
// The metrics that a program outputs: sums and weights, of the whole model, or of layers
// (layers/summaries.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "layers/inspect.h"
#include "tasks/task/metric_means.h"

namespace tessera {

// The names of a program's outputs that begin with `prefix`, without the prefix.
std::vector<std::string> outputs_after(const Executor& executor, int program,
                                       std::string_view prefix);

class MetricOutputs {
 public:
  MetricOutputs(const Executor& executor, int program);

  // All outputs that they are made of, floats and not split, and the number of their elements.
  const std::vector<std::string>& outputs() const { return outputs_; }
  size_t elements() const { return elements_; }
  // The totals, by name, from the elements of these outputs, one output after the other. What a
  // layer has added is there twice: by its full name, and with what other layers have added, by its
  // short name.
  MetricMeans totals(std::span<const double> elements) const;
  // What layers inspect (layers/inspect.h), from the same elements; not among the totals.
  std::vector<Inspected> inspected(std::span<const double> elements) const;
  // The names of MetricMeans::means, sorted.
  std::vector<std::string> names() const;

 private:
  struct Output {
    std::string name;
    Type sum, weight;
  };

  std::vector<Output> metrics_, inspected_;
  std::vector<std::string> outputs_;  // The sum and the weight of each, in this order.
  size_t elements_ = 0;
};

}  // namespace tessera
