// SPDX-License-Identifier: Apache-2.0
// The shape of a tensor from the axes that the rows of a family name (WeightRow::axes), and where
// in it the elements of each row are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/graph/type.h"
#include "tasks/families/hf_family.h"

namespace tessera {

class TensorAxes {
 public:
  struct Step {
    std::string name;
    int64_t size = 0, stride = 0;  // Stride in elements of the tensor.
  };
  // The elements of one row: its axes, outermost first, and the first element.
  struct Part {
    int64_t offset = 0;
    std::vector<Step> steps;
  };

  // The rows of one tensor; types[i] has the sizes of row i's axes.
  TensorAxes(std::span<const WeightRow> rows, const std::vector<const Type*>& types);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return elements_; }
  const Part& part(size_t row) const { return parts_[row]; }

 private:
  std::vector<int64_t> shape_;
  int64_t elements_ = 1;
  std::vector<Part> parts_;
};

}  // namespace tessera
