// SPDX-License-Identifier: Apache-2.0
// A loop whose body is traced once: y = body(body(… x)). Node layout of op "repeat":
//   attributes: count, carries, stacked, constants, reversed (0/1)
//   inputs:  [carries…, stacked… (leading axis `axis`, size count), constants…]
//   body inputs:  [index (i32 scalar), carries…, slices…, constants…]
//   body outputs: [carries…, slices…];  node outputs: [carries…, stacked slices…]
// `reversed` runs index count-1 … 0. Repeated and unrolled give the same bits.
#pragma once

#include <functional>
#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

struct RepeatResult {
  std::vector<Tensor> carries;
  std::vector<Tensor> stacked;  // One per slice the body returned, with the loop axis leading.
};

struct RepeatBody {
  std::vector<Tensor> carries;
  std::vector<Tensor> slices;
};

// Traces body(index, carries, slices of `stacked`) once and loops it `count` times along the
// leading axis `axis` of each stacked operand. Tensors of the outer trace that the body uses become
// constants of the loop; loop-stacked parameters are added as stacked inputs (see loop_slice).
RepeatResult repeat(std::string_view axis, int64_t count, std::vector<Tensor> carries,
                    std::vector<Tensor> stacked,
                    const std::function<RepeatBody(Tensor index, std::vector<Tensor> carries,
                                                   std::vector<Tensor> slices)>& body,
                    SourceSite site = SourceSite::current());

// Inside a body: this iteration's slice of an outer tensor whose leading axis is the loop's.
Tensor loop_slice(const Tensor& outer);
// Inside a body: the loop index, i32 scalar; invalid outside any loop.
Tensor loop_index();

extern const Op kRepeatOp;
// A group of elementwise nodes that run as one loop; its body is the group. Never traced: the
// fusion pass makes it.
extern const Op kFusedOp;
// An einsum and elementwise nodes on its result (core/passes/fusion/fuse_products.h). Never traced.
extern const Op kFusedProductOp;

}  // namespace tessera
