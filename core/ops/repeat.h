// SPDX-License-Identifier: Apache-2.0
// A loop whose body is traced once: y = body(body(… x)). Node layout of op "repeat":
//   attributes: axis, count, carries, stacked, constants, reversed (0/1), first (the index of the
//               first iteration, 0 if absent: stages of a pipeline have later layers)
//   inputs:  [carries…, stacked… (leading axis `axis`, size count), constants…]
//   body inputs:  [index (i32 scalar), carries…, slices…, constants…]
//   body outputs: [carries…, slices…];  node outputs: [carries…, stacked slices…]
// `reversed` runs the iterations backwards. Repeated and unrolled give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

struct RepeatResult {
  std::vector<Tensor> carries;
  std::vector<Tensor> stacked;  // One per slice the body returned, with the loop axis leading.
};

struct RepeatBody {
  std::vector<Tensor> carries;
  std::vector<Tensor> slices;
};

enum class LoopOrder { kForward, kReversed };  // From the first slice, or from the last.

// Traces body(index, carries, slices of `stacked`) once and loops it `count` times along the
// leading axis `axis` of each stacked operand. Tensors of the outer trace that the body uses become
// constants of the loop; loop-stacked parameters are added as stacked inputs (see loop_slice).
RepeatResult repeat(std::string_view axis, int64_t count, const std::vector<Tensor>& carries,
                    const std::vector<Tensor>& stacked,
                    const std::function<RepeatBody(Tensor index, std::vector<Tensor> carries,
                                                   std::vector<Tensor> slices)>& body,
                    LoopOrder order = LoopOrder::kForward, SourceSite site = SourceSite::current());

// Inside a body: this iteration's slice of an outer tensor whose leading axis is the loop's.
Tensor loop_slice(const Tensor& outer);
// Inside a body: the loop index, i32 scalar; invalid outside any loop.
Tensor loop_index();

namespace key {
inline constexpr AttributeName<size_t> kConstants{"constants"};
inline constexpr AttributeName<bool> kReversed{"reversed"};
}  // namespace key
extern const Op kRepeatOp;
// A group of elementwise nodes that run as one loop; its body is the group. Never traced: the
// fusion pass makes it.
extern const Op kFusedOp;
// An einsum and elementwise nodes on its result (core/compile/fuse/fuse.h). Never traced.
extern const Op kFusedProductOp;
// The adam_update nodes of several parameters (core/compile/fuse/fuse.h). Never traced.
extern const Op kFusedUpdatesOp;

bool is_repeat(const Node& node);

// The operands and results of a `repeat` node by their role. Positions count within a role: carry
// 0, slice 0, constant 0.
class Loop {
 public:
  explicit Loop(const Node& node);  // `node` must outlive it.

  const Graph& body() const { return *node_->bodies[0]; }
  int64_t count() const { return node_->attributes.get(key::kCount); }
  const std::string& axis() const { return node_->attributes.get(key::kAxis); }
  // The index that the body sees in iteration 0.
  int64_t first() const { return node_->attributes.get_or(key::kFirst, 0); }
  bool reversed() const { return node_->attributes.get_or(key::kReversed, false); }
  size_t carries() const { return node_->attributes.get(key::kCarries); }
  size_t slices() const { return node_->attributes.get(key::kStacked); }
  size_t constants() const { return node_->attributes.get(key::kConstants); }
  size_t operands() const { return carries() + slices() + constants(); }
  size_t outputs() const { return node_->outputs.size(); }
  size_t results() const { return outputs() - carries(); }  // Stacked outputs.

  // Values of the outer graph: operands are carries, slices, constants; outputs carries, results.
  ValueId operand(size_t i) const { return node_->inputs[i]; }
  ValueId output(size_t i) const { return node_->outputs[i]; }
  ValueId initial(size_t carry) const { return operand(carry); }
  ValueId stacked(size_t slice) const { return operand(carries() + slice); }
  ValueId constant(size_t k) const { return operand(carries() + slices() + k); }
  ValueId last(size_t carry) const { return output(carry); }
  ValueId result(size_t k) const { return output(carries() + k); }

  // Values of the body.
  ValueId index() const { return body().inputs()[0].value; }
  ValueId operand_in(size_t i) const { return body().inputs()[1 + i].value; }
  ValueId output_in(size_t i) const { return body().outputs()[i].value; }
  ValueId carry_in(size_t carry) const { return operand_in(carry); }
  ValueId slice_in(size_t slice) const { return operand_in(carries() + slice); }
  ValueId constant_in(size_t k) const { return operand_in(carries() + slices() + k); }
  ValueId carry_out(size_t carry) const { return output_in(carry); }
  ValueId slice_out(size_t k) const { return output_in(carries() + k); }

  // Returns the iteration, counted from 0, that runs as number `step`.
  int64_t iteration(int64_t step) const { return reversed() ? count() - 1 - step : step; }

 private:
  const Node* node_;
};

// Return the type of a stack of `count` slices of a type, and the type of one slice of a stack.
Type stacked_type(const Type& slice, const std::string& axis, int64_t count);
Type slice_type(const Type& stacked);

// Makes the attributes of a repeat node.
Attributes loop_attributes(const std::string& axis, int64_t count, size_t carries, size_t slices,
                           size_t constants, bool reversed);

}  // namespace tessera
