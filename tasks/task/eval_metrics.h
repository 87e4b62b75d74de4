// SPDX-License-Identifier: Apache-2.0
// Metrics that users write for evaluation. A plugin derives from ScoreMetric (scores of single
// examples: accuracy of multiple choice, calibration) or PredictMetric (text that the model
// generates: exact match), registers the class with
//   const TemplateRegistrar<ScoreMetric, MyMetric> kRegister;
// and an experiment names it in eval.datasets.<dataset>.score_metrics or .predict_metrics.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/template.h"
#include "inputs/base_input.h"

namespace tessera {

struct DecodedExample;  // tasks/run/decode/decode_examples.h

// What one metric gives for one example, or for many: a sum over labels, and their weight.
struct ExampleScore {
  double sum = 0.0;
  double weight = 0.0;

  // Whether a metric that is 0 or 1 for each label, all of weight 1, is 1 for all.
  bool is_one_for_all() const { return sum > weight - 0.5; }
};

// One row of an evaluation's batches. A packed row holds several documents (segment_ids).
struct ScoredExample {
  int64_t number = 0;       // Index in the dataset, from 0.
  std::string_view source;  // For an example of a mixture; else "".
  const Batch& row;         // This row of each array of the batch: ids ["seq"], labels ["seq"], …
  const std::map<std::string, ExampleScore>& scores;  // By model metric, "loss" included.
  // The log-probability in nats of each element of row.at("labels") times its weight; empty if the
  // model has no log_pplx.
  std::span<const float> log_probs = {};

  // Sum over its labels with nonzero weight, in nats.
  double log_likelihood() const { return -scores.at("log_pplx").sum; }
};

// One object per evaluation in every process. All processes add the same examples in the same order
// and get the same values.
class ScoreMetric {
 public:
  virtual ~ScoreMetric() = default;
  // The keys of `values`, known before the run starts, so that wrong names are reported early.
  virtual std::vector<std::string> names() const = 0;
  // Not called for examples of weight 0 (padding, or without a scored label).
  virtual void add(const ScoredExample& example) = 0;
  // Throws an Error if the examples do not determine a value.
  virtual std::map<std::string, double> values() const = 0;
};

// One object per evaluation, in process 0 only, which alone decodes text.
class PredictMetric {
 public:
  virtual ~PredictMetric() = default;
  // The keys of `values`, known before the run starts, so that wrong names are reported early.
  virtual std::vector<std::string> names() const = 0;
  // A prompt, its reference, and the model's continuations, as ids and text.
  virtual void add(const DecodedExample& example) = 0;
  // Throws an Error if the examples do not determine a value.
  virtual std::map<std::string, double> values() const = 0;
};

}  // namespace tessera
