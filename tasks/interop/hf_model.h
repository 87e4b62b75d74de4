// SPDX-License-Identifier: Apache-2.0
// Converts an experiment's TransformerLm to a model of a Hugging Face family, or lists the reasons
// why it fits none. Weights: hf_weights.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "layers/models/language_model.h"
#include "tasks/families/hf_family.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

struct HfModel {
  const HfFamily* family = nullptr;
  LayeredLm ours;                  // As in the experiment,
  LayeredLm theirs;                // and as the family's config.json reads.
  std::vector<std::string> lines;  // The members of that config.json.
};

// The experiment's TransformerLm, whatever task and model, losses and heads are around it. Error if
// the experiment has none, or several. If a model with rotary positions does not give
// max_positions, the input's sequence length is used.
LayeredLm layered_lm_of(const ExperimentConfig& experiment);

// That model as one of the named family, or, if none is named, of the first family that it fits,
// at best without biases and scales that it lacks.
// Error with all reasons why it fits none.
HfModel hf_model_of(const ExperimentConfig& experiment, std::string_view model_type = "");

// <run>/hf_config.json: the config.json from which a run was imported. An export of the same model
// keeps it, with its family and all its members.
void keep_hf_config(const std::filesystem::path& run_directory, std::string_view text);
// "" if the run was not imported.
std::string kept_hf_config(const std::filesystem::path& run_directory);

// That model as the file's config.json has it. Error with all differences.
HfModel hf_model_of(const ExperimentConfig& experiment, const HfConfig& file);

// The layers of a configuration. Dropout is 0.
LanguageModel::HParams model_of_hf(const HfConfig& config, StackStyle style);

// Token ids that begin and end generated text; negative: unknown.
struct HfSpecialIds {
  int64_t begin = -1;
  int64_t end = -1;
};
// A config.json with another dtype.
std::string with_dtype(const std::string& config_text, std::string_view dtype);
// A config.json for the weights as they are read, without its quantization_config.
std::string without_quantization(std::string config_text);
// The text of config.json; `dtype` as PyTorch calls it ("float32").
std::string hf_config_text(const HfModel& model, std::string_view dtype,
                           const HfSpecialIds& special = {});

}  // namespace tessera
