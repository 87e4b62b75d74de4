// SPDX-License-Identifier: Apache-2.0
#include "tasks/metric_means.h"

#include <cmath>

#include "core/base/error.h"

namespace tessera {

void MetricMeans::add(const std::string& name, double sum, double weight) {
  Total& total = totals_[name];
  total.sum += sum;
  total.weight += weight;
}

void MetricMeans::add(const MetricMeans& other) {
  for (const auto& [name, total] : other.totals_) add(name, total.sum, total.weight);
}

std::map<std::string, double> MetricMeans::means() const {
  std::map<std::string, double> means;
  for (const auto& [name, total] : totals_)
    means[name] = plain_nan(total.weight > 0.0 ? total.sum / total.weight : std::nan(""));
  return means;
}

double MetricMeans::weight(const std::string& name) const {
  const auto found = totals_.find(name);
  return found == totals_.end() ? 0.0 : found->second.weight;
}

}  // namespace tessera
