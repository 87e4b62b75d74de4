// SPDX-License-Identifier: Apache-2.0
// Weighted means of metrics over batches, on the host. Sums and weights are accumulated and divided
// once at the end, so padding has no effect and short batches count by their weight.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tessera {

class MetricMeans {
 public:
  struct Total {
    double sum = 0.0;
    double weight = 0.0;
  };

  void add(const std::string& name, double sum, double weight);
  // Adds each element of a metric with an axis, whose size is the same each time.
  void add_histogram(const std::string& name, const std::vector<Total>& elements);
  void add(const MetricMeans& other);
  // Forgets the metric.
  void remove(const std::string& name);

  // Means by metric; NaN where the weight is 0. A histogram gives "<name>_min", "<name>_mean" and
  // "<name>_max" of its elements with a weight.
  std::map<std::string, double> means() const;
  // The mean of each element; NaN where its weight is 0.
  std::map<std::string, std::vector<double>> histograms() const;
  // 0 if the metric was never added.
  double weight(const std::string& name) const;

 private:
  std::map<std::string, Total> totals_;
  std::map<std::string, std::vector<Total>> histograms_;
};

}  // namespace tessera
