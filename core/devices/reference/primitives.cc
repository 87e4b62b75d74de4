// SPDX-License-Identifier: Apache-2.0
// Implements elementwise ops, sums and selections, data movement and generators.
#include "core/devices/reference/primitives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

#include "core/base/random.h"
#include "core/devices/iteration_space.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/order.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/rounding.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

std::vector<double> filled(const ReferenceCall& call, double value) {
  return std::vector<double>(static_cast<size_t>(call.type.elements()), value);
}

// Applies `formula` to aligned elements of all operands.
template <typename Formula>
std::vector<double> pointwise(const ReferenceCall& call, Formula formula) {
  std::vector<Strides> strides;
  for (const ReferenceArray* operand : call.inputs)
    strides.push_back(strides_along(*operand, call.type.axes));
  const IterationSpace space = collapse(sizes_of(call.type.axes), strides);
  const int64_t count = space.sizes.empty() ? 1 : space.sizes.back();
  std::vector<double> result = filled(call, 0.0);
  std::vector<double> x(call.inputs.size());
  std::vector<const double*> from(x.size());
  for (int64_t begin = 0; begin < std::ssize(result); begin += count) {
    for (size_t i = 0; i < x.size(); ++i)
      from[i] = call.inputs[i]->values.data() + space.offset(i, begin);
    for (int64_t j = 0; j < count; ++j) {
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = *from[i];
        if (!space.sizes.empty()) from[i] += space.operands[i].back();
      }
      result[static_cast<size_t>(begin + j)] = formula(x.data());
    }
  }
  return result;
}

std::vector<double> run_scale(const ReferenceCall& call) {
  const double factor = call.node.attributes.get(key::kFactor);
  return pointwise(call, [factor](const double* x) { return x[0] * factor; });
}

// Casts: exact to a floating dtype, toward zero to an integer, a test for nonzero to bool.
std::vector<double> run_cast(const ReferenceCall& call) {
  const DType dtype = call.type.dtype;
  return pointwise(call, [dtype](const double* x) {
    if (dtype == DType::kBool) return x[0] != 0.0 ? 1.0 : 0.0;
    return is_floating(dtype) ? x[0] : std::trunc(x[0]);
  });
}

std::vector<double> run_elementwise(const ReferenceCall& call) {
  return pointwise(call, call.node.op->element.apply);
}

std::vector<Axis> axes_named(const std::vector<Axis>& axes, const Names& names) {
  std::vector<Axis> chosen;
  std::ranges::copy_if(axes, std::back_inserter(chosen), [&](const Axis& axis) {
    return std::ranges::find(names, axis.name) != names.end();
  });
  return chosen;
}

// The axes of the result followed by the summed axes, and the result's strides along them.
struct SumSpace {
  std::vector<Axis> axes;
  std::vector<int64_t> result_strides;

  SumSpace(const ReferenceCall& call, const std::vector<Axis>& summed) : axes(call.type.axes) {
    axes.insert(axes.end(), summed.begin(), summed.end());
    result_strides = strides_along({call.type.axes, {}}, axes);
  }
};

// Adds x·y to `count` sums, with these distances between elements: most of the interpreter's time.
void add_products(double* sum, const double* x, const double* y, int64_t count,
                  const std::array<int64_t, 3>& steps) {
  const auto add = [&](auto step, auto x_step, auto y_step) {
    for (int64_t i = 0; i < count; ++i) sum[i * step] += x[i * x_step] * y[i * y_step];
  };
  using Zero = std::integral_constant<int64_t, 0>;
  using One = std::integral_constant<int64_t, 1>;
  const bool is_plain = steps[0] == 1;
  if (is_plain && steps[1] == 0 && steps[2] == 1) return add(One(), Zero(), One());
  if (is_plain && steps[1] == 1 && steps[2] == 0) return add(One(), One(), Zero());
  add(steps[0], steps[1], steps[2]);
}

std::vector<double> run_einsum(const ReferenceCall& call) {
  const ReferenceArray &a = call.input(0), &b = call.input(1);
  std::vector<Axis> axes = axes_named(a.axes, call.node.attributes.get(key::kContracted));
  axes.insert(axes.end(), call.type.axes.begin(), call.type.axes.end());
  if (axes.empty()) return {a.values[0] * b.values[0]};
  std::vector<std::vector<int64_t>> strides = {strides_along({call.type.axes, {}}, axes),
                                               strides_along(a, axes), strides_along(b, axes)};
  const int64_t count = axes.back().size;
  axes.pop_back();
  std::array<int64_t, 3> steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i] = strides[i].back();
    strides[i].pop_back();
  }
  std::vector<double> result = filled(call, 0.0);
  for_each_index(axes, strides, [&](int64_t, const std::vector<int64_t>& at) {
    add_products(result.data() + at[0], a.values.data() + at[1], b.values.data() + at[2], count,
                 steps);
  });
  return result;
}

template <typename Combine>
std::vector<double> reduce(const ReferenceCall& call, double start, Combine combine) {
  const ReferenceArray& x = call.input(0);
  const SumSpace space(call, axes_named(x.axes, call.node.attributes.get(key::kAxes)));
  std::vector<double> result = filled(call, start);
  for_each_index(space.axes, {space.result_strides, strides_along(x, space.axes)},
                 [&](int64_t, const std::vector<int64_t>& at) {
                   double& sum = result[static_cast<size_t>(at[0])];
                   sum = combine(sum, x.values[static_cast<size_t>(at[1])]);
                 });
  return result;
}

std::vector<double> run_reduce_max(const ReferenceCall& call) {
  return reduce(call, -std::numeric_limits<double>::infinity(),
                [](double a, double b) { return std::max(a, b); });
}

// Calls row_of_id(i, row) for each id that is in the first axis of `table`: the table's row that it
// selects, counted over all batches. An id outside gives zeros.
template <typename RowOfId>
void for_each_selected_row(const ReferenceCall& call, const std::vector<Axis>& table,
                           RowOfId row_of_id) {
  const ReferenceArray& ids = call.input(1);
  const auto axis = std::ranges::find(table, call.node.attributes.get(key::kAxis), &Axis::name);
  size_t batches = 1;
  for (auto each = table.begin(); each != axis; ++each) batches *= static_cast<size_t>(each->size);
  const size_t ids_of_batch = std::max<size_t>(1, ids.values.size() / batches);
  const int64_t origin = call.origin(static_cast<size_t>(axis - table.begin()));
  for (size_t i = 0; i < ids.values.size(); ++i) {
    const int64_t id = static_cast<int64_t>(ids.values[i]) - origin;
    if (id < 0 || id >= axis->size) continue;
    row_of_id(i, i / ids_of_batch * static_cast<size_t>(axis->size) + static_cast<size_t>(id));
  }
}

std::vector<double> run_gather(const ReferenceCall& call) {
  const ReferenceArray& table = call.input(0);
  std::vector<double> result = filled(call, 0.0);
  const size_t width = result.size() / std::max<size_t>(1, call.input(1).values.size());
  for_each_selected_row(call, table.axes, [&](size_t i, size_t row) {
    for (size_t j = 0; j < width; ++j) result[i * width + j] = table.values[row * width + j];
  });
  return result;
}

std::vector<double> run_scatter_add(const ReferenceCall& call) {
  const ReferenceArray& updates = call.input(0);
  std::vector<double> result = filled(call, 0.0);
  const size_t width = updates.values.size() / std::max<size_t>(1, call.input(1).values.size());
  for_each_selected_row(call, call.type.axes, [&](size_t i, size_t row) {
    for (size_t j = 0; j < width; ++j) result[row * width + j] += updates.values[i * width + j];
  });
  return result;
}

std::vector<double> run_pick(const ReferenceCall& call) {
  const ReferenceArray &x = call.input(0), &ids = call.input(1);
  const std::string& name = call.node.attributes.get(key::kAxis);
  const auto axis = std::ranges::find(x.axes, name, &Axis::name);
  const int64_t stride = strides_along(x, {*axis}).front();
  const int64_t origin = call.origin(static_cast<size_t>(axis - x.axes.begin()));
  std::vector<int64_t> strides = strides_along(x, call.type.axes);
  if (ids.axes.size() == x.axes.size()) strides[static_cast<size_t>(axis - x.axes.begin())] = 0;
  std::vector<double> result = filled(call, 0.0);
  for_each_index(call.type.axes, {strides}, [&](int64_t position, const std::vector<int64_t>& at) {
    const int64_t id = static_cast<int64_t>(ids.values[static_cast<size_t>(position)]) - origin;
    if (id < 0 || id >= axis->size) return;
    result[static_cast<size_t>(position)] = x.values[static_cast<size_t>(at[0] + id * stride)];
  });
  return result;
}

std::vector<double> run_scatter_along(const ReferenceCall& call) {
  const ReferenceArray &x = call.input(0), &ids = call.input(1);
  const ReferenceArray sums{call.type.axes, {}};
  const auto k = static_cast<size_t>(
      std::ranges::find(x.axes, call.node.attributes.get(key::kK), &Axis::name) - x.axes.begin());
  const int64_t stride = strides_along(sums, {call.type.axes[k]}).front();
  std::vector<int64_t> strides = strides_along(sums, x.axes);
  strides[k] = 0;
  std::vector<double> result = filled(call, 0.0);
  for_each_index(x.axes, {strides}, [&](int64_t position, const std::vector<int64_t>& at) {
    const auto i = static_cast<size_t>(position);
    const int64_t id = static_cast<int64_t>(ids.values[i]) - call.origin(k);
    if (id < 0 || id >= call.type.axes[k].size) return;
    result[static_cast<size_t>(at[0] + id * stride)] += x.values[i];
  });
  return result;
}

// The rows of operand and result along attribute "axis", of which the result keeps the first
// positions.
struct RowPair {
  int64_t from, to;  // Offsets of the first elements.
};
struct Rows {
  int64_t size, kept, stride;
  std::vector<RowPair> starts;

  explicit Rows(const ReferenceCall& call) {
    const ReferenceArray& x = call.input(0);
    const std::string& name = call.node.attributes.get(key::kAxis);
    const auto axis =
        static_cast<size_t>(std::ranges::find(x.axes, name, &Axis::name) - x.axes.begin());
    size = x.axes[axis].size, kept = call.type.axes[axis].size;
    stride = strides_along(x, {x.axes[axis]}).front();
    const int64_t outer = element_count(x.axes) / (size * stride);
    for (int64_t i = 0; i < outer; ++i) {
      for (int64_t inner = 0; inner < stride; ++inner)
        starts.push_back({i * size * stride + inner, i * kept * stride + inner});
    }
  }
};

// Runs argsort and top_k, which keeps the first positions.
std::vector<double> run_order(const ReferenceCall& call) {
  const std::vector<double>& x = call.input(0).values;
  const bool descending = call.node.attributes.get(key::kDescending);
  const auto less = [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); };
  std::vector<double> result = filled(call, 0.0);
  const Rows rows(call);
  for (const auto& [from, to] : rows.starts) {
    std::vector<int64_t> order(static_cast<size_t>(rows.size));
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto value = [&, from = from](int64_t i) {
      return x[static_cast<size_t>(from + i * rows.stride)];
    };
    std::ranges::stable_sort(order, [&](int64_t i, int64_t j) {
      return descending ? less(value(j), value(i)) : less(value(i), value(j));
    });
    for (int64_t i = 0; i < rows.kept; ++i)
      result[static_cast<size_t>(to + i * rows.stride)] =
          static_cast<double>(order[static_cast<size_t>(i)]);
  }
  return result;
}

std::vector<double> run_cumulative_sum(const ReferenceCall& call) {
  const std::vector<double>& x = call.input(0).values;
  const bool exclusive = call.node.attributes.get(key::kExclusive);
  const bool reverse = call.node.attributes.get(key::kReverse);
  std::vector<double> result = filled(call, 0.0);
  const Rows rows(call);
  for (const auto& [from, to] : rows.starts) {
    double sum = 0.0;
    for (int64_t step = 0; step < rows.size; ++step) {
      const auto at =
          static_cast<size_t>(from + (reverse ? rows.size - 1 - step : step) * rows.stride);
      if (exclusive) result[at] = sum;
      sum += x[at];
      if (!exclusive) result[at] = sum;
    }
  }
  return result;
}

std::vector<double> run_view(const ReferenceCall& call) { return call.input(0).values; }

// Copies by axis names: transpose, and broadcast along new axes.
std::vector<double> run_aligned_copy(const ReferenceCall& call) {
  return pointwise(call, [](const double* x) { return x[0]; });
}

// Shifts: position p of the result is position p + shift of the operand, or `fill` outside it.
std::vector<double> moved_along(const ReferenceCall& call, int64_t shift, double fill) {
  const ReferenceArray& x = call.input(0);
  const std::string& name = call.node.attributes.get(key::kAxis);
  const int64_t axis = call.type.find(name);
  const int64_t stride = strides_along(x, call.type.axes)[static_cast<size_t>(axis)];
  std::vector<int64_t> count_along(call.type.axes.size(), 0);  // Steps of 1 along `axis` only.
  count_along[static_cast<size_t>(axis)] = 1;
  const int64_t size = x.axes[static_cast<size_t>(axis)].size;
  std::vector<double> result = filled(call, fill);
  for_each_index(call.type.axes, {strides_along(x, call.type.axes), count_along},
                 [&](int64_t position, const std::vector<int64_t>& at) {
                   const int64_t source = at[1] + shift;
                   if (source < 0 || source >= size) return;
                   result[static_cast<size_t>(position)] =
                       x.values[static_cast<size_t>(at[0] + shift * stride)];
                 });
  return result;
}

std::vector<double> run_concat(const ReferenceCall& call) {
  const int64_t axis = call.type.find(call.node.attributes.get(key::kAxis));
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
  return call.node.attributes.get(key::kIsOwner) ? call.input(0).values : filled(call, 0.0);
}

std::vector<double> run_iota(const ReferenceCall& call) {
  std::vector<double> result = filled(call, 0.0);
  std::iota(result.begin(), result.end(), static_cast<double>(call.origin(0)));
  return result;
}

std::vector<double> run_causal_mask(const ReferenceCall& call) {
  std::vector<double> result;
  for (int64_t query = 0; query < call.type.axes[0].size; ++query)
    for (int64_t key = 0; key < call.type.axes[1].size; ++key)
      result.push_back(call.origin(1) + key <= call.origin(0) + query ? 1.0 : 0.0);
  return result;
}

std::vector<double> run_one_hot(const ReferenceCall& call) {
  std::vector<double> result;
  const int64_t first = call.origin(call.type.axes.size() - 1);
  for (const double id : call.input(0).values)
    for (int64_t i = 0; i < call.type.axes.back().size; ++i)
      result.push_back(id == static_cast<double>(first + i) ? 1.0 : 0.0);
  return result;
}

uint32_t philox_word(uint64_t key, int64_t element, int64_t step) {
  const PhiloxBlock block =
      philox(key, static_cast<uint64_t>(element / 4), static_cast<uint64_t>(step));
  return block[static_cast<size_t>(element % 4)];
}

// Calls use(i, element) for each element i of the result with its number in the global array, whose
// examples are first, first + stride, …; stride 0: all examples.
template <typename Use>
void for_each_element(const ReferenceCall& call, int64_t first, int64_t stride, Use use) {
  const std::vector<Axis>& axes = call.type.axes;
  std::vector<int64_t> extent, rows;
  for (const Axis& axis : axes) extent.push_back(axis.size);
  extent = call.node.attributes.get_or(key::kExtent, extent);
  rows = call.node.attributes.get_or(key::kRows, rows);
  std::vector<int64_t> strides(axes.size(), 1), local(axes.size(), 1);
  for (size_t i = axes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * extent[i];
    local[i - 1] = local[i] * axes[i].size;
  }
  const int64_t leading = axes.empty() ? 0 : strides[0];
  int64_t begin = 0;
  if (stride != 0) {
    begin = first * strides[0];
    strides[0] *= stride;
  }
  for (size_t i = rows.empty() ? 0 : 1; i < axes.size(); ++i) begin += call.origin(i) * strides[i];
  if (!rows.empty()) strides[0] = 0;
  for_each_index(axes, {strides}, [&](int64_t i, const std::vector<int64_t>& at) {
    const int64_t row = rows.empty() ? 0 : rows[static_cast<size_t>(i / local[0])];
    use(i, begin + at[0] + row * leading);
  });
}

// Draws uniform numbers. Operands: step; the loop index if attribute "loop" is set; the number of
// the first example if attribute "part" is (core/ops/random.cc).
std::vector<double> run_random_uniform(const ReferenceCall& call) {
  const Attributes& attributes = call.node.attributes;
  size_t operand = 0;
  const auto next = [&] { return static_cast<int64_t>(call.input(operand++).values.front()); };
  const int64_t step = next();
  const int64_t layer = attributes.get(key::kLoop) ? next() : attributes.get(key::kLayer);
  const int64_t stride = attributes.get(key::kPart);
  const int64_t first = stride != 0 ? next() : 0;
  const uint64_t key = random_key(attributes.get(key::kSeed), attributes.get(key::kStream), layer);
  std::vector<double> result;
  for_each_element(call, first, stride, [&](int64_t, int64_t element) {
    result.push_back(uniform_from_bits(philox_word(key, element, step)));
  });
  return result;
}

// Rounds. Operands: x, and the number of updates before this one (core/ops/rounding.cc).
std::vector<double> run_stochastic_round(const ReferenceCall& call) {
  const Attributes& attributes = call.node.attributes;
  const uint64_t key = random_key(attributes.get(key::kSeed), attributes.get(key::kStream));
  const bool high = attributes.get(key::kHalf) == NoiseHalf::kHigh;
  const auto count = static_cast<int64_t>(call.input(1).values.front());
  const std::vector<double>& x = call.input(0).values;
  std::vector<double> result = x;
  for_each_element(call, 0, 0, [&](int64_t i, int64_t element) {
    const uint32_t word = philox_word(key, attributes.get(key::kFirst) + element, count);
    const auto value = static_cast<float>(x[static_cast<size_t>(i)]);
    const uint32_t bits =
        stochastic_bf16_bits(std::bit_cast<uint32_t>(value), high ? word >> 16 : word & 0xffffu);
    result[static_cast<size_t>(i)] = std::bit_cast<float>(bits << 16);
  });
  return result;
}

struct ReferenceOp {
  const OpDef* op;
  ReferenceFunction run;
};

using Call = const ReferenceCall&;

const ReferenceOp kReferenceOps[] = {
    {&kScaleOp, run_scale},
    {&kCastOp, run_cast},
    {&kEinsumOp, run_einsum},
    {&kReduceSumOp, [](Call c) { return reduce(c, 0.0, std::plus<double>()); }},
    {&kReduceMaxOp, run_reduce_max},
    {&kGatherOp, run_gather},
    {&kScatterAddOp, run_scatter_add},
    {&kPickOp, run_pick},
    {&kScatterAlongOp, run_scatter_along},
    {&kArgsortOp, run_order},
    {&kTopKOp, run_order},
    {&kCumulativeSumOp, run_cumulative_sum},
    {&kReshardOp, run_view},
    {&kSaveForBackwardOp, run_view},
    {&kRenameOp, run_view},
    {&kSplitAxisOp, run_view},
    {&kMergeAxesOp, run_view},
    {&kTransposeOp, run_aligned_copy},
    {&kBroadcastOp, run_aligned_copy},
    {&kSliceOp, [](Call c) { return moved_along(c, c.node.attributes.get(key::kBegin), 0.0); }},
    {&kPadOp, [](Call c) { return moved_along(c, -c.node.attributes.get(key::kBefore), 0.0); }},
    {&kShiftRightOp, [](Call c) { return moved_along(c, -1, c.node.attributes.get(key::kFill)); }},
    {&kConcatOp, run_concat},
    {&kMaskToOwnerOp, run_mask_to_owner},
    {&kConstantOp, [](Call c) { return filled(c, c.node.attributes.get(key::kValue)); }},
    {&kIotaOp, run_iota},
    {&kCausalMaskOp, run_causal_mask},
    {&kOneHotOp, run_one_hot},
    {&kRandomUniformOp, run_random_uniform},
    {&kStochasticRoundOp, run_stochastic_round},
};

}  // namespace

ReferenceFunction find_reference(const OpDef& op) {
  if (op.element.apply != nullptr) return run_elementwise;
  const auto row = std::ranges::find(kReferenceOps, &op, &ReferenceOp::op);
  return row == std::end(kReferenceOps) ? nullptr : row->run;
}

}  // namespace tessera
