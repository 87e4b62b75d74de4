// SPDX-License-Identifier: Apache-2.0
// The matrices of which a tensor consists: which of its axes are their rows and columns.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/type.h"

namespace tessera {

// The axes of each matrix in storage; all other axes number matrices.
struct MatrixAxes {
  std::vector<std::string> rows, columns;
};

// The matrices of tensors of this type, whose axes of matrices are not split, as ["… row column"]
// with one axis for each, named after the first, in the order of storage.
class Matrices {
 public:
  Matrices(const Type& type, MatrixAxes axes);

  const std::string& row() const { return axes_.rows.front(); }
  const std::string& column() const { return axes_.columns.front(); }
  Type type() const;  // "… row column".
  Tensor of(const Tensor& x) const;
  Tensor stored(Tensor y) const;  // The inverse.

 private:
  Type type_;
  MatrixAxes axes_;
  std::vector<std::string> order_;
};

}  // namespace tessera
