// SPDX-License-Identifier: Apache-2.0
// Metrics that users write for evaluation. A plugin derives from ScoreMetric (scores of single
// examples: accuracy of multiple choice, calibration) or PredictMetric (text that the model
// generates: exact match), registers the class with
//   const TemplateRegistrar<ScoreMetric, MyMetric> kRegister;
// and an experiment names it in eval.datasets.<dataset>.score_metrics or .predict_metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/template.h"
#include "inputs/base_input.h"

namespace tessera {

struct DecodedExample;  // tasks/decode/decode_examples.h

// What one metric gives for one example, or for many: a sum over labels, and their weight.
struct ExampleScore {
  double sum = 0.0;
  double weight = 0.0;
};

// One row of an evaluation's batches. A packed row holds several documents (segment_ids).
struct ScoredExample {
  int64_t number = 0;       // In the order of the dataset, from 0.
  std::string_view source;  // Of a mixture's example; else "".
  const Batch& row;         // Its part of each array of the batch: ids ["seq"], labels ["seq"], …
  const std::map<std::string, ExampleScore>& scores;  // By the model's metric, "loss" among them.

  // Of its labels that weigh something, together; nats.
  double log_likelihood() const { return -scores.at("log_pplx").sum; }
};

// One object per evaluation in every process. All processes add the same examples in the same order
// and get the same values.
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

// One object per evaluation, in process 0 only, which alone decodes text.
class PredictMetric {
 public:
  virtual ~PredictMetric() = default;
  // What `values` gives: it is known before the run, so that a misspelt name is told then.
  virtual std::vector<std::string> names() const = 0;
  // A prompt, what the dataset goes on with, and the model's continuations of it, ids and text.
  virtual void add(const DecodedExample& example) = 0;
  // Error for examples from which nothing can be said.
  virtual std::map<std::string, double> values() const = 0;
};

}  // namespace tessera
