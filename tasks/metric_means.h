// SPDX-License-Identifier: Apache-2.0
// Weighted means of metrics over batches, on the host. Sums and weights are accumulated and divided
// once at the end, so padding has no effect and short batches count by their weight.
#pragma once

#include <map>
#include <string>

namespace tessera {

class MetricMeans {
 public:
  void add(const std::string& name, double sum, double weight);
  void add(const MetricMeans& other);
  // By metric; NaN where the weight is 0.
  std::map<std::string, double> means() const;
  double weight(const std::string& name) const;  // 0 if the metric was never added.

 private:
  struct Total {
    double sum = 0.0;
    double weight = 0.0;
  };
  std::map<std::string, Total> totals_;
};

}  // namespace tessera
