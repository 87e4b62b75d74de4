// SPDX-License-Identifier: Apache-2.0
// A metric of a user's own, computed from text that the model generates: exact match, a score by a
// grammar, the length of answers. A plugin derives from it, registers the class
// (`const TemplateRegistrar<PredictMetric, MyMetric> kRegister;`), and an experiment names it for a
// dataset, eval.datasets.<dataset>.predict_metrics. Not for metrics of likelihood (score_metric.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/hparams/template.h"
#include "tasks/decode/decode_examples.h"

namespace tessera {

// Made anew for each evaluation, in the first process alone: only it decodes text.
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
