// SPDX-License-Identifier: Apache-2.0
// Sums and selections of the reference interpreter: einsum, reductions, gather, scatter_add, pick.
#include <algorithm>
#include <limits>

#include "core/backend/reference/primitives.h"
#include "core/ops/einsum.h"
#include "core/ops/gather.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

std::vector<double> filled(const ReferenceCall& call, double value) {
  return std::vector<double>(static_cast<size_t>(call.type.elements()), value);
}

std::vector<Axis> axes_named(const std::vector<Axis>& axes, const Names& names) {
  std::vector<Axis> chosen;
  for (const Axis& axis : axes) {
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) chosen.push_back(axis);
  }
  return chosen;
}

// All axes of the result followed by the summed axes, and the result's strides along them.
struct SumSpace {
  std::vector<Axis> axes;
  std::vector<int64_t> result_strides;

  SumSpace(const ReferenceCall& call, const std::vector<Axis>& summed) : axes(call.type.axes) {
    axes.insert(axes.end(), summed.begin(), summed.end());
    result_strides = strides_along({call.type.axes, {}}, axes);
  }
};

std::vector<double> run_einsum(const ReferenceCall& call) {
  const ReferenceArray &a = call.input(0), &b = call.input(1);
  const Names& contracted = call.node.attributes.get<Names>("contracted");
  const SumSpace space(call, axes_named(a.axes, contracted));
  std::vector<double> result = filled(call, 0.0);
  for_each_index(space.axes,
                 {space.result_strides, strides_along(a, space.axes), strides_along(b, space.axes)},
                 [&](int64_t, const std::vector<int64_t>& at) {
                   result[static_cast<size_t>(at[0])] +=
                       a.values[static_cast<size_t>(at[1])] * b.values[static_cast<size_t>(at[2])];
                 });
  return result;
}

template <typename Combine>
std::vector<double> reduce(const ReferenceCall& call, double start, Combine combine) {
  const ReferenceArray& x = call.input(0);
  const SumSpace space(call, axes_named(x.axes, call.node.attributes.get<Names>("axes")));
  std::vector<double> result = filled(call, start);
  for_each_index(space.axes, {space.result_strides, strides_along(x, space.axes)},
                 [&](int64_t, const std::vector<int64_t>& at) {
                   double& sum = result[static_cast<size_t>(at[0])];
                   sum = combine(sum, x.values[static_cast<size_t>(at[1])]);
                 });
  return result;
}

std::vector<double> run_reduce_sum(const ReferenceCall& call) {
  return reduce(call, 0.0, [](double a, double b) { return a + b; });
}

std::vector<double> run_reduce_max(const ReferenceCall& call) {
  return reduce(call, -std::numeric_limits<double>::infinity(),
                [](double a, double b) { return std::max(a, b); });
}

// Rows of the first axis; an id outside it gives zeros.
std::vector<double> run_gather(const ReferenceCall& call) {
  const ReferenceArray &table = call.input(0), &ids = call.input(1);
  const int64_t rows = table.axes.front().size;
  const size_t width = table.values.size() / static_cast<size_t>(rows);
  std::vector<double> result = filled(call, 0.0);
  for (size_t i = 0; i < ids.values.size(); ++i) {
    const int64_t id = static_cast<int64_t>(ids.values[i]) - call.origin(0);
    if (id < 0 || id >= rows) continue;
    std::copy_n(table.values.begin() + id * static_cast<int64_t>(width), width,
                result.begin() + static_cast<int64_t>(i * width));
  }
  return result;
}

std::vector<double> run_scatter_add(const ReferenceCall& call) {
  const ReferenceArray &updates = call.input(0), &ids = call.input(1);
  const int64_t rows = call.type.axes.front().size;
  std::vector<double> result = filled(call, 0.0);
  const size_t width = result.size() / static_cast<size_t>(rows);
  for (size_t i = 0; i < ids.values.size(); ++i) {
    const int64_t id = static_cast<int64_t>(ids.values[i]) - call.origin(0);
    if (id < 0 || id >= rows) continue;
    for (size_t j = 0; j < width; ++j)
      result[static_cast<size_t>(id) * width + j] += updates.values[i * width + j];
  }
  return result;
}

std::vector<double> run_pick(const ReferenceCall& call) {
  const ReferenceArray &x = call.input(0), &ids = call.input(1);
  const std::string& name = call.node.attributes.get<std::string>("axis");
  const Axis axis = axes_named(x.axes, {name}).front();
  const int64_t stride = strides_along(x, {axis}).front();
  size_t place = 0;
  while (x.axes[place].name != name) ++place;
  const int64_t origin = call.origin(place);
  std::vector<double> result = filled(call, 0.0);
  for_each_index(
      call.type.axes, {strides_along(x, call.type.axes)},
      [&](int64_t position, const std::vector<int64_t>& at) {
        const int64_t id = static_cast<int64_t>(ids.values[static_cast<size_t>(position)]) - origin;
        if (id < 0 || id >= axis.size) return;
        result[static_cast<size_t>(position)] = x.values[static_cast<size_t>(at[0] + id * stride)];
      });
  return result;
}

const ReferenceOp kSumsOps[] = {
    {&kEinsumOp, run_einsum}, {&kReduceSumOp, run_reduce_sum},   {&kReduceMaxOp, run_reduce_max},
    {&kGatherOp, run_gather}, {&kScatterAddOp, run_scatter_add}, {&kPickOp, run_pick},
};

}  // namespace

std::span<const ReferenceOp> reference_sums() { return kSumsOps; }

}  // namespace tessera
