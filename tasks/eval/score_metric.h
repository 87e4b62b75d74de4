// SPDX-License-Identifier: Apache-2.0
// A metric of a user's own, computed from the scores of single examples: accuracy of multiple
// choice by likelihood, calibration, a loss by length. A plugin derives from it, registers the
// class
// (`const TemplateRegistrar<ScoreMetric, MyMetric> kRegister;`), and an experiment names it for a
// dataset, eval.datasets.<dataset>.score_metrics. Not for metrics of generated text
// (predict_metric.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/template.h"
#include "inputs/base_input.h"
#include "tasks/eval/example_score.h"

namespace tessera {

// One row of an evaluation's batches. A packed row holds several documents (segment_ids).
struct ScoredExample {
  int64_t number = 0;       // In the order of the dataset, from 0.
  std::string_view source;  // Of a mixture's example; else "".
  const Batch& row;         // Its part of each array of the batch: ids ["seq"], labels ["seq"], …
  const std::map<std::string, ExampleScore>& scores;  // By the model's metric, "loss" among them.

  // Of its labels that weigh something, together; nats.
  double log_likelihood() const { return -scores.at("log_pplx").sum; }
};

// Made anew for each evaluation; every process makes one, gives it the same examples in the same
// order, and takes the same values from it.
class ScoreMetric {
 public:
  virtual ~ScoreMetric() = default;
  // What `values` gives: it is known before the run, so that a misspelt name is told then.
  virtual std::vector<std::string> names() const = 0;
  // Examples that weigh nothing (padding, and those without a label that is scored) are left out.
  virtual void add(const ScoredExample& example) = 0;
  // Error for examples from which nothing can be said.
  virtual std::map<std::string, double> values() const = 0;
};

}  // namespace tessera
