// SPDX-License-Identifier: Apache-2.0
// Converts between our layers and the configuration in hf_config.h, and lists every reason why a
// model is none of the supported architectures. Weights: hf_weights.h.
#pragma once

#include "core/hparams/fields.h"
#include "layers/models/language_model.h"
#include "tasks/interop/hf_config.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

// Differences in how equivalent weights are stored.
struct HfConventions {
  bool interleaved_rotary = false;     // Pairs (2i, 2i+1) instead of (i, i + head_dim/2).
  bool block_scale_from_zero = false;  // Scales of norms are stored minus 1.
  bool final_scale_from_zero = false;
};

struct HfModel {
  HfConfig config;
  HfConventions conventions;
};

// The configuration of an experiment's TransformerLm, whatever task and model, losses and heads are
// around it. Error with everything that no architecture supports, or if the experiment has none, or
// several. If a model with rotary positions does not give max_positions, the input's sequence
// length is used.
HfModel hf_model_of(const ExperimentConfig& experiment);

enum class HfStack { kRepeated, kUnrolled };

// The reverse: layers for a configuration. Dropout is 0.
LanguageModel::HParams model_of_hf(const HfConfig& config, HfStack stack);

}  // namespace tessera
