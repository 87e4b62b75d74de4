// SPDX-License-Identifier: Apache-2.0
// What the graph of an evaluation gives for each example of the global batch, whole on every
// device: from it the host adds up scores by dataset, source and tag, in f64 and in one order.
#pragma once

#include "layers/models/base_model.h"
#include "layers/fprop_scope.h"

namespace tessera {

// Examples whose eval_sample_weights are 0 get labels that weigh nothing: padding is then no matter
// of the input alone.
void weigh_examples(Features* features);

// Adds the outputs rows/<metric> and row_weights/<metric>, and row/<name> of what the batch says of
// its examples: their source, bytes and weight. Nothing for a model that gives no terms.
void output_rows(const ModelOutput& output, const Features& features);

}  // namespace tessera
