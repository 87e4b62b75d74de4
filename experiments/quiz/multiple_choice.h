// SPDX-License-Identifier: Apache-2.0
// Accuracy of multiple choice: a question is answered by that one of its answers which the model
// finds most likely. An example of a metric of single examples.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/eval_metrics.h"

namespace tessera {

// The rows of a question follow each other in the dataset, the right answer first; labels of the
// answer alone weigh something. An answer that is as likely as the right one counts against it. A
// question of which some rows are beyond the evaluation's end is left out.
class MultipleChoice final : public ScoreMetric {
 public:
  struct HParams {
    using Instance = MultipleChoice;
    static constexpr std::string_view kName = "MultipleChoice";
    int64_t num_choices = 4;
    FIELDS(num_choices)
  };
  explicit MultipleChoice(const HParams& p);

  // accuracy; normalised_accuracy, by likelihood a label, for answers of unlike length; questions.
  std::vector<std::string> names() const override;
  void add(const ScoredExample& example) override;
  std::map<std::string, double> values() const override;

 private:
  struct Answer {
    double nats = 0.0;
    double nats_a_label = 0.0;
  };
  HParams p_;
  std::map<int64_t, std::map<int64_t, Answer>> questions_;
};

extern template class HolderOf<ScoreMetric, MultipleChoice::HParams>;

}  // namespace tessera
