// SPDX-License-Identifier: Apache-2.0
// Examples of metrics in a plugin: ExactMatch scores generated text, MultipleChoice scores single
// examples.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/eval_metrics.h"

namespace tessera {

// How often the generated text equals the reference, ignoring white space at either end.
class ExactMatch final : public PredictMetric {
 public:
  struct HParams {
    using Instance = ExactMatch;
    static constexpr std::string_view kName = "ExactMatch";
    bool ignore_case = false;
    FIELDS(ignore_case)
  };
  explicit ExactMatch(const HParams& p) : p_(p) {}

  // exact_match, of the first sample; any_match, of any sample; examples.
  std::vector<std::string> names() const override;
  void add(const DecodedExample& example) override;
  std::map<std::string, double> values() const override;

 private:
  std::string normalised(const std::string& text) const;

  HParams p_;
  int64_t examples_ = 0;
  int64_t first_matches_ = 0;
  int64_t any_matches_ = 0;
};

// Accuracy of multiple choice: the model answers with the answer that it finds most likely. The
// rows of a question are consecutive in the dataset, the correct answer first; only labels of the
// answer have weight. A tie with the correct answer counts as wrong. A question with rows beyond
// the end of the evaluation is not counted.
class MultipleChoice final : public ScoreMetric {
 public:
  struct HParams {
    using Instance = MultipleChoice;
    static constexpr std::string_view kName = "MultipleChoice";
    int64_t num_choices = 4;
    FIELDS(num_choices)
  };
  explicit MultipleChoice(const HParams& p);

  // accuracy; normalised_accuracy, by likelihood per label, for answers of different lengths;
  // questions.
  std::vector<std::string> names() const override;
  void add(const ScoredExample& example) override;
  std::map<std::string, double> values() const override;

 private:
  struct Answer {
    double nats = 0.0;
    double nats_per_label = 0.0;
  };
  HParams p_;
  std::map<int64_t, std::map<int64_t, Answer>> questions_;
};

extern template class HolderOf<PredictMetric, ExactMatch::HParams>;
extern template class HolderOf<ScoreMetric, MultipleChoice::HParams>;

}  // namespace tessera
