// SPDX-License-Identifier: Apache-2.0
// How the eval datasets of an experiment (`eval_inputs`) are scored: how many batches, which extra
// metrics, and which averages over datasets. When to evaluate: task.train.eval_….
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

// One dataset.
struct EvalHParams {
  static constexpr std::string_view kName = "Eval";
  // Batches per evaluation; -1: all. Unset: task.train.eval_loop_num_batches.
  std::optional<int64_t> num_batches;
  // Whether each evaluation starts at the beginning. If false, the input must repeat; each
  // evaluation continues where the last one stopped, and checkpoints store the position.
  bool reset_for_eval = true;
  std::map<std::string, Template<ScoreMetric>> score_metrics;  // By name in eval lines.
  // Metrics of generated text, and how to generate it (unset: as task.decode). They use all
  // examples of the dataset, or the first decode.num_examples.
  std::map<std::string, Template<PredictMetric>> predict_metrics;
  std::optional<DecodeHParams> decode;
  FIELDS(num_batches, reset_for_eval, score_metrics, predict_metrics, decode)
};

struct EvaluationHParams {
  static constexpr std::string_view kName = "Evaluation";
  std::map<std::string, EvalHParams> datasets;  // By dataset name; defaults for those not listed.
  // Averages with a name: the members of each tag, "dataset" or "dataset/source".
  std::map<std::string, std::vector<std::string>> tags;
  // --checkpoint=follow: how often to look for a new checkpoint, and after how long without any
  // output the job counts as stopped.
  double follow_poll_seconds = 2.0;
  double follow_patience_seconds = 1800.0;
  FIELDS(datasets, tags, follow_poll_seconds, follow_patience_seconds)
};

}  // namespace tessera
