// SPDX-License-Identifier: Apache-2.0
// Widths relative to a base model: the maximal update parametrization (muP; Yang et al., "Tensor
// Programs V", 2022, arXiv 2203.03466, table 3). Where a weight's fan-in and fan-out, of axes that
// are widths, are `in` and `out` times those in the base model,
//
//   weights (widths)           initial deviation   Adam's learning rate   SGD's
//   input, vectors (out)       the base's          1                      out
//   hidden (both)              the base's / √in    1 / in                 out / in
//   output (in)                the base's / in     1 / in                 1 / in
//
// keep activations and their changes as large as there. "The base's" is what the initialiser gives
// at the base's sizes. Factors of activations are HParams: tasks/task/mup.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "layers/parameter.h"

namespace tessera {

struct WidthRatios {
  double in = 1.0, out = 1.0;
  double initial = 1.0;  // Of the initial deviation, to the base's.
};
WidthRatios width_ratios(const Parameter& parameter);

// The weight with the sizes that it has in the base model.
Parameter in_base_model(Parameter parameter);

// For each axis its largest size in weights, relative to that in `base`: Parameter::widths. Error
// for an axis that no weight has.
std::map<std::string, double> relative_widths(const ParameterTable& table,
                                              const std::map<std::string, int64_t>& base);

}  // namespace tessera
