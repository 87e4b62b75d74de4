// SPDX-License-Identifier: Apache-2.0
// How the eval datasets of an experiment (`eval_inputs`) are scored: how much of each, what is
// averaged together, and with which metrics beside the model's. When: task.train.eval_….
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/decode_hparams.h"
#include "tasks/eval_metrics.h"

namespace tessera {

// Of one dataset.
struct EvalHParams {
  static constexpr std::string_view kName = "Eval";
  // Batches of each evaluation; -1: all. Unset: task.train.eval_loop_num_batches.
  std::optional<int64_t> num_batches;
  // Whether each evaluation begins anew. If not, num_batches roll on from where the last one
  // stopped, over an input that repeats; checkpoints keep the place.
  bool reset_for_eval = true;
  std::map<std::string, Template<ScoreMetric>> score_metrics;  // By the name in eval lines.
  // The same of what the model generates for the dataset's examples, and how; all of them, or
  // decode.num_examples. Unset: as task.decode.
  std::map<std::string, Template<PredictMetric>> predict_metrics;
  std::optional<DecodeHParams> decode;
  FIELDS(num_batches, reset_for_eval, score_metrics, predict_metrics, decode)
};

struct EvaluationHParams {
  static constexpr std::string_view kName = "Evaluation";
  std::map<std::string, EvalHParams> datasets;  // By dataset; one that is left out has defaults.
  // What is averaged under a name of its own: each tag's members, "dataset" or "dataset/source".
  std::map<std::string, std::vector<std::string>> tags;
  // --checkpoint=follow: how often to look for a new one, and how long the job may write nothing
  // before it counts as stopped.
  double follow_poll_seconds = 2.0;
  double follow_patience_seconds = 1800.0;
  FIELDS(datasets, tags, follow_poll_seconds, follow_patience_seconds)
};

}  // namespace tessera
