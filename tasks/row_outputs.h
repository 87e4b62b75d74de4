// SPDX-License-Identifier: Apache-2.0
// Per-example outputs of an evaluation graph, f32["batch"], replicated. The host sums them by
// dataset, source and tag, in f64 and in a fixed order.
#pragma once

#include "layers/fprop_scope.h"
#include "layers/models/base_model.h"

namespace tessera {

// Sets the label weights of examples with eval_sample_weights 0 to 0, so that padding never counts.
void weigh_examples(Features* features);

// Adds the outputs rows/<metric> and row_weights/<metric>, and row/<name> for per-example fields of
// the batch (source, bytes, weight). Adds nothing if the model gives no per-token terms.
void output_rows(const ModelOutput& output, const Features& features);

}  // namespace tessera
