// SPDX-License-Identifier: Apache-2.0
// What an evaluation of one dataset adds up, as a whole and by source: sums and weights in f64, row
// by row, so that neither batch size nor hosts matter, and what is reported from them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tasks/eval/eval_program.h"
#include "tasks/metric_means.h"

namespace tessera {

// What is reported of a model's metrics: they themselves, weight (of the labels scored), perplexity
// if there is log_pplx, and bits_per_byte if the text of labels is known.
std::vector<std::string> reported_names(const std::vector<std::string>& model_metrics,
                                        bool knows_bytes);
// Their values, not a number where nothing was scored.
std::map<std::string, double> reported_values(const MetricMeans& means,
                                              const std::vector<std::string>& names);

class DatasetScores {
 public:
  explicit DatasetScores(size_t num_sources) : by_source_(num_sources) {}

  // Rows whose sample weight is 0 are passed over.
  void add(const ScoredBatch& batch);

  const MetricMeans& whole() const { return whole_; }
  const std::vector<MetricMeans>& by_source() const { return by_source_; }

 private:
  void add_row(const ScoredBatch& batch, size_t row, MetricMeans* means) const;

  MetricMeans whole_;
  std::vector<MetricMeans> by_source_;
};

}  // namespace tessera
