// SPDX-License-Identifier: Apache-2.0
// How often the model goes on exactly as the dataset does. An example of a metric of generated
// text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/eval_metrics.h"

namespace tessera {

// White space at either end does not count. Of several samples any may match.
class ExactMatch final : public PredictMetric {
 public:
  struct HParams {
    using Instance = ExactMatch;
    static constexpr std::string_view kName = "ExactMatch";
    bool ignore_case = false;
    FIELDS(ignore_case)
  };
  explicit ExactMatch(const HParams& p) : p_(p) {}

  // exact_match, of the first sample; any_match; examples.
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

extern template class HolderOf<PredictMetric, ExactMatch::HParams>;

}  // namespace tessera
