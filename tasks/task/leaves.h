// SPDX-License-Identifier: Apache-2.0
// The gradient of a batch in leaves (numerics=mesh_invariant). A leaf is a part of the batch that
// is never divided over the mesh axes that split the batch: a batch of its own for the model. A
// loop gives each group of devices one leaf at a time, in the order of the batch, and adds the
// gradients and metrics of the leaves one after the other. So every mesh and every number of
// microbatches adds the same terms in the same order.
#pragma once

#include "tasks/task/microbatches.h"

namespace tessera {

// The number of leaves of a batch, whatever the mesh: a divisor of 48, so that 2, 3, 4, 6, 8, 12,
// 16, 24 and 48 devices may divide it.
int64_t leaves_of_batch(int64_t batch);

// The number of leaves that each device computes. Error if those that split the batch do not divide
// the leaves.
int64_t leaves_of_device(const Features& features);

// Does as differentiate(), with leaves_of_device() iterations of the loop. Weights are gathered
// over the mesh axes that split the batch once, before the loop.
Differentiated differentiate_leaves(const BaseModel& model, const std::vector<Tensor>& parameters,
                                    const std::vector<int32_t>& trained, const Features& features);

}  // namespace tessera
