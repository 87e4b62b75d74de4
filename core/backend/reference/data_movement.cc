// SPDX-License-Identifier: Apache-2.0
// Data movement and generators of the reference interpreter.
#include <algorithm>

#include "core/backend/reference/primitives.h"
#include "core/base/error.h"

namespace tessera {
namespace {

std::vector<double> run_view(const ReferenceCall& call) { return call.input(0).values; }

// Transpose by axis names, and broadcast along new axes.
std::vector<double> run_aligned_copy(const ReferenceCall& call) {
  const ReferenceArray& x = call.input(0);
  std::vector<double> result(static_cast<size_t>(call.type.elements()));
  for_each_index(call.type.axes, {strides_along(x, call.type.axes)},
                 [&](int64_t position, const std::vector<int64_t>& at) {
                   result[static_cast<size_t>(position)] = x.values[static_cast<size_t>(at[0])];
                 });
  return result;
}

// result[p] = operand[p + shift] along `axis`, or `fill` outside of the operand.
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

const ReferenceOp kMovementOps[] = {
    {"reshard", run_view},
    {"rename", run_view},
    {"split_axis", run_view},
    {"merge_axes", run_view},
    {"transpose", run_aligned_copy},
    {"broadcast", run_aligned_copy},
    {"slice", run_slice},
    {"pad", run_pad},
    {"shift_right", run_shift_right},
    {"concat", run_concat},
    {"mask_to_owner", run_mask_to_owner},
    {"constant", run_constant},
    {"iota", run_iota},
    {"causal_mask", run_causal_mask},
    {"one_hot", run_one_hot},
};

}  // namespace

std::span<const ReferenceOp> reference_movement() { return kMovementOps; }

}  // namespace tessera
