// SPDX-License-Identifier: Apache-2.0
// Weighted means of metrics over batches, on the host. Sums and weights are accumulated and divided
// once at the end, so padding has no effect and short batches count by their weight.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "core/base/error.h"

namespace tessera {

class MetricMeans {
 public:
  void add(const std::string& name, double sum, double weight) {
    Total& total = totals_[name];
    total.sum += sum;
    total.weight += weight;
  }
  void add(const MetricMeans& other) {
    for (const auto& [name, total] : other.totals_) add(name, total.sum, total.weight);
  }
  // By metric; NaN where the weight is 0.
  std::map<std::string, double> means() const {
    std::map<std::string, double> means;
    for (const auto& [name, total] : totals_)
      means[name] = plain_nan(total.weight > 0.0 ? total.sum / total.weight : std::nan(""));
    return means;
  }
  // 0 if the metric was never added.
  double weight(const std::string& name) const {
    const auto found = totals_.find(name);
    return found == totals_.end() ? 0.0 : found->second.weight;
  }

 private:
  struct Total {
    double sum = 0.0;
    double weight = 0.0;
  };
  std::map<std::string, Total> totals_;
};

}  // namespace tessera
