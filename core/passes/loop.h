// SPDX-License-Identifier: Apache-2.0
// Reading and writing the operands of a `repeat` node by their part in the loop (the layout is in
// core/ops/repeat.h), so that no pass counts positions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/tensor.h"

namespace tessera {

bool is_repeat(const Node& node);

// A view of a repeat node. Positions are within their part: carry 0, slice 0, constant 0.
class Loop {
 public:
  explicit Loop(const Node& node);  // Refers to `node`.

  const Graph& body() const { return *node_->bodies[0]; }
  int64_t count() const { return count_; }
  const std::string& axis() const { return axis_; }
  bool reversed() const { return reversed_; }
  int64_t carries() const { return carries_; }
  int64_t slices() const { return slices_; }
  int64_t constants() const { return constants_; }
  int64_t results() const;  // Stacked outputs.

  // Of the outer graph.
  ValueId initial(int64_t carry) const { return operand(carry); }
  ValueId stacked(int64_t slice) const { return operand(carries_ + slice); }
  ValueId constant(int64_t k) const { return operand(carries_ + slices_ + k); }
  ValueId last(int64_t carry) const { return node_->outputs[static_cast<size_t>(carry)]; }
  ValueId result(int64_t k) const { return node_->outputs[static_cast<size_t>(carries_ + k)]; }

  // Of the body.
  ValueId index() const { return body_input(0); }
  ValueId carry_in(int64_t carry) const { return body_input(1 + carry); }
  ValueId slice_in(int64_t slice) const { return body_input(1 + carries_ + slice); }
  ValueId constant_in(int64_t k) const { return body_input(1 + carries_ + slices_ + k); }
  ValueId carry_out(int64_t carry) const { return body_output(carry); }
  ValueId slice_out(int64_t k) const { return body_output(carries_ + k); }

  // The iteration that is run as number `step` (0, 1, …).
  int64_t iteration(int64_t step) const { return reversed_ ? count_ - 1 - step : step; }

 private:
  ValueId operand(int64_t i) const { return node_->inputs[static_cast<size_t>(i)]; }
  ValueId body_input(int64_t i) const { return body().inputs()[static_cast<size_t>(i)].value; }
  ValueId body_output(int64_t i) const { return body().outputs()[static_cast<size_t>(i)].value; }

  const Node* node_;
  int64_t count_, carries_, slices_, constants_;
  bool reversed_;
  std::string axis_;
};

// Of a stack of `count` slices of this type, and of one slice of a stack.
Type stacked_type(const Type& slice, const std::string& axis, int64_t count);
Type slice_type(const Type& stacked);

// The attributes of a repeat node.
Attributes loop_attributes(const std::string& axis, int64_t count, int64_t carries, int64_t slices,
                           int64_t constants, bool reversed);

}  // namespace tessera
