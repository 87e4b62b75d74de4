// SPDX-License-Identifier: Apache-2.0
// Weighted means of a model's metrics over batches, on the host: sums and weights add up, and the
// division comes last, so that padding weighs nothing and short batches count for what they hold.
#pragma once

#include <map>
#include <string>

namespace tessera {

class MetricMeans {
 public:
  void add(const std::string& name, double sum, double weight);
  void add(const MetricMeans& other);
  // By metric; one of no weight is not a number.
  std::map<std::string, double> means() const;
  double weight(const std::string& name) const;  // 0 if it was never added.

 private:
  struct Total {
    double sum = 0.0;
    double weight = 0.0;
  };
  std::map<std::string, Total> totals_;
};

}  // namespace tessera
