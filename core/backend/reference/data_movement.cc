// SPDX-License-Identifier: Apache-2.0
// Data movement and generators of the reference interpreter.
#include <algorithm>

#include "core/backend/reference/primitives.h"
#include "core/base/random.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

std::vector<double> run_view(const ReferenceCall& call) { return call.input(0).values; }

// By axis names: transpose, and broadcast along new axes.
std::vector<double> run_aligned_copy(const ReferenceCall& call) {
  const ReferenceArray& x = call.input(0);
  std::vector<double> result(static_cast<size_t>(call.type.elements()));
  for_each_index(call.type.axes, {strides_along(x, call.type.axes)},
                 [&](int64_t position, const std::vector<int64_t>& at) {
                   result[static_cast<size_t>(position)] = x.values[static_cast<size_t>(at[0])];
                 });
  return result;
}

// Position p of the result along `axis` is position p + shift of the operand, or `fill` outside it.
std::vector<double> moved_along(const ReferenceCall& call, int64_t shift, double fill) {
  const ReferenceArray& x = call.input(0);
  const std::string& name = call.node.attributes.get<std::string>("axis");
  const int64_t axis = call.type.find(name);
  const int64_t stride = strides_along(x, call.type.axes)[static_cast<size_t>(axis)];
  std::vector<int64_t> count_along(call.type.axes.size(), 0);  // Steps of 1 along `axis` only.
  count_along[static_cast<size_t>(axis)] = 1;
  const int64_t size = x.axes[static_cast<size_t>(axis)].size;
  std::vector<double> result(static_cast<size_t>(call.type.elements()), fill);
  for_each_index(call.type.axes, {strides_along(x, call.type.axes), count_along},
                 [&](int64_t position, const std::vector<int64_t>& at) {
                   const int64_t source = at[1] + shift;
                   if (source < 0 || source >= size) return;
                   result[static_cast<size_t>(position)] =
                       x.values[static_cast<size_t>(at[0] + shift * stride)];
                 });
  return result;
}

std::vector<double> run_slice(const ReferenceCall& call) {
  return moved_along(call, call.node.attributes.get<int64_t>("begin"), 0.0);
}

std::vector<double> run_pad(const ReferenceCall& call) {
  return moved_along(call, -call.node.attributes.get<int64_t>("before"), 0.0);
}

std::vector<double> run_shift_right(const ReferenceCall& call) {
  return moved_along(call, -1, call.node.attributes.get<double>("fill"));
}

std::vector<double> run_concat(const ReferenceCall& call) {
  const int64_t axis = call.type.find(call.node.attributes.get<std::string>("axis"));
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < call.type.axes.size(); ++i)
    inner *= call.type.axes[i].size;
  std::vector<double> result;
  const int64_t whole = call.type.axes[static_cast<size_t>(axis)].size * inner;
  for (int64_t outer = 0; outer < call.type.elements() / whole; ++outer) {
    for (const ReferenceArray* part : call.inputs) {
      const int64_t run = part->axes[static_cast<size_t>(axis)].size * inner;
      result.insert(result.end(), part->values.begin() + outer * run,
                    part->values.begin() + (outer + 1) * run);
    }
  }
  return result;
}

std::vector<double> run_mask_to_owner(const ReferenceCall& call) {
  if (call.node.attributes.get<int64_t>("keep") != 0) return call.input(0).values;
  return std::vector<double>(static_cast<size_t>(call.type.elements()), 0.0);
}

std::vector<double> run_constant(const ReferenceCall& call) {
  return std::vector<double>(static_cast<size_t>(call.type.elements()),
                             call.node.attributes.get<double>("value"));
}

std::vector<double> run_iota(const ReferenceCall& call) {
  std::vector<double> result;
  for (int64_t i = 0; i < call.type.elements(); ++i)
    result.push_back(static_cast<double>(call.origin(0) + i));
  return result;
}

std::vector<double> run_causal_mask(const ReferenceCall& call) {
  std::vector<double> result;
  for (int64_t query = 0; query < call.type.axes[0].size; ++query) {
    for (int64_t key = 0; key < call.type.axes[1].size; ++key)
      result.push_back(call.origin(1) + key <= call.origin(0) + query ? 1.0 : 0.0);
  }
  return result;
}

std::vector<double> run_one_hot(const ReferenceCall& call) {
  std::vector<double> result;
  const int64_t first = call.origin(call.type.axes.size() - 1);
  for (const double id : call.input(0).values) {
    for (int64_t i = 0; i < call.type.axes.back().size; ++i)
      result.push_back(id == static_cast<double>(first + i) ? 1.0 : 0.0);
  }
  return result;
}

// Operands: step; the loop index if attribute "loop" is set; the number of the first example if
// attribute "part" is (core/ops/random.cc).
std::vector<double> run_random_uniform(const ReferenceCall& call) {
  const Attributes& attributes = call.node.attributes;
  size_t operand = 0;
  const auto next = [&] { return static_cast<int64_t>(call.input(operand++).values.front()); };
  const int64_t step = next();
  const int64_t layer =
      attributes.get<int64_t>("loop") != 0 ? next() : attributes.get<int64_t>("layer");
  const int64_t stride = attributes.get<int64_t>("part");
  const int64_t first = stride != 0 ? next() : 0;
  const uint64_t key = random_key(static_cast<uint64_t>(attributes.get<int64_t>("seed")),
                                  attributes.get<std::string>("stream"), layer);
  // Elements are numbered in the global array; its examples are first, first + stride, …
  const std::vector<Axis>& axes = call.type.axes;
  std::vector<int64_t> extent;
  for (const Axis& axis : axes) extent.push_back(axis.size);
  extent = call.node.attributes.get_or(kExtent, extent);
  std::vector<int64_t> strides(axes.size(), 1);
  for (size_t i = axes.size(); i-- > 1;) strides[i - 1] = strides[i] * extent[i];
  int64_t begin = 0;
  if (stride != 0) {
    begin = first * strides[0];
    strides[0] *= stride;
  }
  for (size_t i = 0; i < axes.size(); ++i) begin += call.origin(i) * strides[i];
  std::vector<double> result;
  for_each_index(axes, {strides}, [&](int64_t, const std::vector<int64_t>& at) {
    const int64_t element = begin + at[0];
    const PhiloxBlock block =
        philox(key, static_cast<uint64_t>(element / 4), static_cast<uint64_t>(step));
    result.push_back(uniform_from_bits(block[static_cast<size_t>(element % 4)]));
  });
  return result;
}

const ReferenceOp kMovementOps[] = {
    {&kReshardOp, run_view},
    {&kSaveForBackwardOp, run_view},
    {&kRenameOp, run_view},
    {&kSplitAxisOp, run_view},
    {&kMergeAxesOp, run_view},
    {&kTransposeOp, run_aligned_copy},
    {&kBroadcastOp, run_aligned_copy},
    {&kSliceOp, run_slice},
    {&kPadOp, run_pad},
    {&kShiftRightOp, run_shift_right},
    {&kConcatOp, run_concat},
    {&kMaskToOwnerOp, run_mask_to_owner},
    {&kConstantOp, run_constant},
    {&kIotaOp, run_iota},
    {&kCausalMaskOp, run_causal_mask},
    {&kOneHotOp, run_one_hot},
    {&kRandomUniformOp, run_random_uniform},
};

}  // namespace

std::span<const ReferenceOp> reference_data_movement() { return kMovementOps; }

}  // namespace tessera
