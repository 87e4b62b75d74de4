// SPDX-License-Identifier: Apache-2.0
// Finds the nearest mesh shape that fits a recipe, if the configured one does not.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tasks/task/config/experiment.h"

namespace tessera {

// The ICI shape with as many devices and the same slices whose sizes differ least from the
// configured ones (by the sum of their ratios' logarithms) and on which the training step can be
// traced. nullopt if the configured mesh fits, if the configuration fails on one device too, so
// that the mesh is not the reason, or if none of the nearest shapes fits. `devices`: how many a
// mesh without a shape has.
std::optional<std::vector<int64_t>> nearest_fitting_shape(const ExperimentConfig& config,
                                                          int64_t devices);

}  // namespace tessera
