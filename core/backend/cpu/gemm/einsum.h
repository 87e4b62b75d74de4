// SPDX-License-Identifier: Apache-2.0
// Einsum as a batch of matrix products, batch × (m×k · k×n). Operands whose axes do not form a
// matrix in memory are packed into one first (the TTGT scheme: transpose, GEMM, transpose).
#pragma once

#include <optional>
#include <vector>

#include "core/backend/cpu/gemm/gemm.h"
#include "core/backend/iteration_space.h"
#include "core/graph/graph.h"

namespace tessera {

// A copy of an operand to the order batch, rows, columns (or of the result from that order).
struct Packing {
  IterationSpace space;  // Operand 0 is read, operand 1 is written.
  int64_t elements = 0;
};

struct Contraction {
  // Whether the second operand of the einsum is A, because the result is stored transposed.
  bool swapped = false;
  GemmShape shape;  // Shape of one product of the batch.
  // Batch dimensions, outermost first; operands 0, 1, 2 are A, B, C.
  IterationSpace batch;
  std::optional<Packing> pack_a, pack_b, pack_c;
  int64_t batches() const { return batch.elements(); }
};

Contraction make_contraction(const Graph& graph, const Node& node);

}  // namespace tessera
