// SPDX-License-Identifier: Apache-2.0
// Residual sums beside norms: a norm and the add of its operand, or the gradient of a norm and the
// add of its dx and another cotangent, become one node. After fuse_products(), which adds a
// residual to a product before it is stored, and before fuse(). Loop bodies are treated separately.
// Linear in the graph.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Returns the graph with `fused_norm` nodes. The body of one is an add of two arrays like the sum,
// then rms_norm or layer_norm of it; results are the norm's, then the sum if others read it. Or it
// is rms_norm_grad or layer_norm_grad, then the add of its dx; results are the gradient's, with the
// sum for dx.
Graph fuse_norms(Graph lowered);

}  // namespace tessera
