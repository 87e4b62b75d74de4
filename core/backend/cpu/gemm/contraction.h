// SPDX-License-Identifier: Apache-2.0
// An einsum as products of matrices: batch × (m×k · k×n). Operands whose axes do not lie as a
// matrix are copied into one first.
#pragma once

#include <optional>
#include <vector>

#include "core/backend/cpu/gemm/matrix_product.h"
#include "core/backend/cpu/space.h"
#include "core/graph/graph.h"

namespace tessera {

// A copy of an operand (or from the result) in the order batch, rows, columns.
struct Packing {
  Space space;  // Operand 0 is read, operand 1 is written.
  int64_t elements = 0;
};

struct Contraction {
  // The einsum's second operand is A where the result is wanted transposed.
  bool swapped = false;
  ProductShape shape;  // Of one product.
  // Batch dimensions, outermost first; operands 0, 1, 2 are A, B, C.
  Space batch;
  std::optional<Packing> pack_a, pack_b, pack_c;
  int64_t batches() const { return batch.elements(); }
};

Contraction make_contraction(const Graph& graph, const Node& node);

}  // namespace tessera
