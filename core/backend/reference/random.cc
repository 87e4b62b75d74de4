// SPDX-License-Identifier: Apache-2.0
// Random ops of the reference interpreter, with the formulas of core/base/random.h.
#include "core/base/random.h"

#include "core/backend/reference/primitives.h"

namespace tessera {
namespace {

// Operands: the step; the loop index if the attribute "loop" is set; the first example if "part" is
// set (core/ops/random.cc).
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
  // The global index; examples are first, first + stride, …
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

const ReferenceOp kRandomOps[] = {{"random_uniform", run_random_uniform}};

}  // namespace

std::span<const ReferenceOp> reference_random() { return kRandomOps; }

}  // namespace tessera
