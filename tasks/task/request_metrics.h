// SPDX-License-Identifier: Apache-2.0
// Metrics of benchmarks whose requests RequestsInput reads, as lm-evaluation-harness defines them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/score_requests.h"
#include "tasks/task/eval_metrics.h"

namespace tessera {

// For each task of the file, over its questions (requests of one `example`): <task>_accuracy, the
// share in which the right answer has the highest log-likelihood, and <task>_accuracy_norm, after
// division by the answer's characters. With one answer a question: <task>_accuracy, the share in
// which greedy decoding gives it, and <task>_perplexity, exp of the mean of -log-likelihood.
class RequestMetrics final : public ScoreMetric {
 public:
  struct HParams {
    using Instance = RequestMetrics;
    std::string path;  // The file that the dataset's RequestsInput reads.
    FIELDS(path)
  };
  explicit RequestMetrics(const HParams& p);

  std::vector<std::string> names() const override;
  void add(const ScoredExample& example) override;
  std::map<std::string, double> values() const override;

 private:
  struct Score {
    double log_likelihood = 0.0;
    bool is_greedy = false;
  };
  struct Task {
    std::map<int64_t, std::vector<size_t>> questions;  // Numbers of requests, by example.
    bool has_choices = false;                          // Whether a question has several answers,
    bool has_characters = true;  // and all answers have their number of characters.
  };
  bool is_scored(const std::vector<size_t>& answers) const;
  // Whether the answer with the highest score, the first of several, is the right one.
  template <typename ScoreOf>
  bool is_right(const std::vector<size_t>& answers, const ScoreOf& score_of) const;
  void add_values(const std::string& name, const Task& task,
                  std::map<std::string, double>* values) const;

  std::shared_ptr<const std::vector<ScoreRequest>> requests_;
  std::map<std::string, Task> tasks_;
  std::map<size_t, Score> scores_;  // By number of the request.
};

extern template class HolderOf<ScoreMetric, RequestMetrics::HParams>;

}  // namespace tessera
