// SPDX-License-Identifier: Apache-2.0
// Widths relative to a base model: the maximal update parametrization (muP; Yang et al., "Tensor
// Programs V", 2022, arXiv 2203.03466, table 3). Some axes are widths; an initial value and an
// update of a weight then depend on how often as large as in the base model its fan-in and fan-out
// are, so that activations and their changes stay as large as there, and so do the best learning
// rates.
//
//   weight   axes that are widths   initial deviation      Adam's learning rate   SGD's
//   input    fan-out, or a vector   the base's             1                      out
//   hidden   both                   the base's / √in       1 / in                 out / in
//   output   fan-in                 the base's / in        1 / in                 1 / in
//
// "The base's" is what the weight's initialiser gives with the base's sizes. What a model computes
// with its weights does not depend on any of this: factors such as the multiplier of tied logits
// are HParams (tasks/task/mup.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "layers/parameter.h"

namespace tessera {

// A weight's fan-in and fan-out relative to the base model. A vector has outputs only.
struct WidthRatios {
  double in = 1.0, out = 1.0;
  double initial = 1.0;  // Of the initial deviation, to what the initialiser gives at base sizes.
};
WidthRatios width_ratios(const Parameter& parameter);

// The weight with the sizes that it has in the base model.
Parameter in_base_model(Parameter parameter);

// The ratio of each axis in `base`: its largest size in weights, relative to that in `base`. Error
// for an axis that no weight has.
std::map<std::string, double> relative_widths(const ParameterTable& table,
                                              const std::map<std::string, int64_t>& base);

// The largest sizes of these weights' axes, without those of stacks.
std::map<std::string, int64_t> axis_sizes(const ParameterTable& table);

}  // namespace tessera
