// SPDX-License-Identifier: Apache-2.0
// Runs a small language model once on fixed ids and labels, forward and backward.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "layers/fprop_scope.h"
#include "layers/models/language_model.h"

namespace tessera {

using NamedValues = std::map<std::string, std::vector<double>>;

// The loss, "sum/<metric>", "weight/<metric>" and "gradient/<path>" of a model with a vocabulary of
// 17 tokens, on CPU threads under a remat policy.
NamedValues model_outputs(const LanguageModel::HParams& p,
                          std::string_view remat = "save_everything", Mode mode = Mode::kTrain);

}  // namespace tessera
