// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/metric_means.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "layers/summaries.h"

namespace tessera {
namespace {

double mean_of(const MetricMeans::Total& total) {
  return plain_nan(total.weight > 0.0 ? total.sum / total.weight : std::nan(""));
}

void add_to(MetricMeans::Total& total, const MetricMeans::Total& other) {
  total.sum += other.sum;
  total.weight += other.weight;
}

// In the order of kHistogramParts. A NaN makes all of them NaN.
std::array<double, std::size(kHistogramParts)> parts_of(
    const std::vector<MetricMeans::Total>& elements) {
  std::vector<double> means;
  for (const MetricMeans::Total& element : elements)
    if (element.weight > 0.0) means.push_back(mean_of(element));
  const double sum = std::accumulate(means.begin(), means.end(), 0.0);
  if (means.empty() || std::isnan(sum)) {
    const double nan = plain_nan(std::nan(""));
    return {nan, nan, nan};
  }
  const auto [least, greatest] = std::ranges::minmax(means);
  return {least, sum / static_cast<double>(means.size()), greatest};
}

}  // namespace

void MetricMeans::add(const std::string& name, double sum, double weight) {
  add_to(totals_[name], {sum, weight});
}

void MetricMeans::add_histogram(const std::string& name, const std::vector<Total>& elements) {
  std::vector<Total>& totals = histograms_[name];
  if (totals.empty()) totals.resize(elements.size());
  CHECK(totals.size() == elements.size(), "{} has {} elements, then {}", name, totals.size(),
        elements.size());
  for (size_t i = 0; i < totals.size(); ++i) add_to(totals[i], elements[i]);
}

void MetricMeans::add(const MetricMeans& other) {
  for (const auto& [name, total] : other.totals_) add_to(totals_[name], total);
  for (const auto& [name, elements] : other.histograms_) add_histogram(name, elements);
}

void MetricMeans::remove(const std::string& name) {
  totals_.erase(name);
  histograms_.erase(name);
}

std::map<std::string, double> MetricMeans::means() const {
  std::map<std::string, double> means;
  for (const auto& [name, total] : totals_) means[name] = mean_of(total);
  for (const auto& [name, elements] : histograms_) {
    const auto parts = parts_of(elements);
    for (size_t i = 0; i < parts.size(); ++i)
      means[name + std::string(kHistogramParts[i])] = parts[i];
  }
  return means;
}

std::map<std::string, std::vector<double>> MetricMeans::histograms() const {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, elements] : histograms_)
    for (const Total& element : elements) all[name].push_back(mean_of(element));
  return all;
}

double MetricMeans::weight(const std::string& name) const {
  const auto found = totals_.find(name);
  return found == totals_.end() ? 0.0 : found->second.weight;
}

}  // namespace tessera
