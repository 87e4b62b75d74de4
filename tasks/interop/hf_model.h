// SPDX-License-Identifier: Apache-2.0
// A model of ours in Hugging Face's terms, and theirs in ours: what hf_config.h says as layers, and
// the reverse, with every reason why a model is neither a GPT-2 nor a Llama. Weights are
// hf_weights.h.
#pragma once

#include <string>

#include "core/hparams/field.h"
#include "layers/models/language_model.h"
#include "tasks/config/experiment.h"
#include "tasks/interop/hf_config.h"

namespace tessera {

// How our layers keep what Hugging Face's keep otherwise: of no account for what they compute.
struct HfConventions {
  bool interleaved_rotary = false;     // Pairs (2i, 2i+1) in place of (i, i + head_dim/2).
  bool block_scale_from_zero = false;  // Scales of norms are stored less 1.
  bool final_scale_from_zero = false;
};

struct HfModel {
  HfConfig config;
  HfConventions conventions;
};

// The model of an experiment. Error that lists everything about it that neither architecture has.
// A Llama that does not say how long sequences may be (max_positions) is said to take as long ones
// as the experiment's input has.
HfModel hf_model_of(const ExperimentConfig& experiment);

enum class HfStack { kRepeated, kUnrolled };

// The other way: layers for such a configuration. Dropout is left at none.
LanguageModel::HParams model_of_hf(const HfConfig& config, HfStack stack);

}  // namespace tessera
