// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/dataset_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/base/error.h"
#include "core/base/plain_nan.h"

namespace tessera {
namespace {

constexpr const char* kLoss = "loss";
constexpr const char* kLogPplx = "log_pplx";
constexpr const char* kPerplexity = "perplexity";
constexpr const char* kBitsPerByte = "bits_per_byte";
constexpr const char* kWeight = "weight";

}  // namespace

std::vector<std::string> reported_names(const std::vector<std::string>& model_metrics,
                                        bool knows_bytes) {
  std::vector<std::string> names = model_metrics;
  const bool has_log_pplx = std::find(names.begin(), names.end(), kLogPplx) != names.end();
  names.emplace_back(kWeight);
  if (has_log_pplx) names.emplace_back(kPerplexity);
  if (has_log_pplx && knows_bytes) names.emplace_back(kBitsPerByte);
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, double> reported_values(const MetricMeans& means,
                                              const std::vector<std::string>& names) {
  const std::map<std::string, double> all = means.means();
  const auto mean = [&](const std::string& name) {
    const auto found = all.find(name);
    return found == all.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
  };
  std::map<std::string, double> values;
  for (const std::string& name : names) {
    if (name == kWeight) {
      values[name] = means.weight(kLoss);
    } else if (name == kPerplexity) {
      values[name] = plain_nan(std::exp(mean(kLogPplx)));
    } else {
      values[name] = mean(name);
    }
  }
  return values;
}

void DatasetScores::add(const ScoredBatch& batch) {
  if (batch.rows.empty()) {
    for (const auto& [name, total] : batch.totals) whole_.add(name, total.sum, total.weight);
    return;
  }
  const size_t rows = batch.rows.begin()->second.size();
  for (size_t row = 0; row < rows; ++row) {
    if (!batch.sample_weights.empty() && batch.sample_weights[row] == 0.0f) continue;
    add_row(batch, row, &whole_);
    if (by_source_.empty() || batch.sources.empty()) continue;
    const int32_t source = batch.sources[row];
    CHECK(source >= 0 && static_cast<size_t>(source) < by_source_.size(), "source {}", source);
    add_row(batch, row, &by_source_[static_cast<size_t>(source)]);
  }
}

void DatasetScores::add_row(const ScoredBatch& batch, size_t row, MetricMeans* means) const {
  for (const auto& [name, rows] : batch.rows) means->add(name, rows[row].sum, rows[row].weight);
  const auto log_pplx = batch.rows.find(kLogPplx);
  if (log_pplx == batch.rows.end() || batch.label_bytes.empty()) return;
  const double share = batch.sample_weights.empty() ? 1.0 : batch.sample_weights[row];
  means->add(kBitsPerByte, log_pplx->second[row].sum / std::numbers::ln2,
             share * batch.label_bytes[row]);
}

}  // namespace tessera
