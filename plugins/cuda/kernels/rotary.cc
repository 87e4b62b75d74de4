// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/multiples.h"
#include "core/devices/iteration_space.h"
#include "core/ops/rotary.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {
namespace {

class RotaryKernel final : public CudaKernel {
 public:
  RotaryKernel(const Graph& graph, const Node& node, Context& context) : context_(context) {
    const Type& x = graph.type(node.inputs[0]);
    const std::string name = fmt::format("rotary_{}", float_suffix(graph, node, node.inputs[0]));
    aligned_ = context.function("rotary", name);
    unaligned_ = context.function("rotary", name + "_unaligned");
    p_.pairs = x.axes.back().size / 2;
    whole_packs_ = p_.pairs * dtype_bytes(x.dtype) % 16 == 0;
    set_turns(RotaryAttributes(node.attributes));
    set_groups(x, graph.type(node.inputs[1]));
    set_shape();
  }

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    RotaryParameters p = p_;
    p.x = pointer_as<const void>(args.inputs[0]);
    p.positions = pointer_as<const int32_t>(args.inputs[1]);
    p.y = pointer_as<void>(args.outputs[0]);
    const bool aligned =
        whole_packs_ && args.inputs[0].value() % 16 == 0 && args.outputs[0].value() % 16 == 0;
    launch(context_, stream, aligned ? aligned_ : unaligned_, shape_, p);
  }

 private:
  void set_turns(const RotaryAttributes& rotary) {
    p_.interleaved = rotary.interleaved, p_.inverse = rotary.inverse;
    const double min = rotary.min_timescale, max = rotary.max_timescale;
    p_.first = 1.0 / (2.0 * std::numbers::pi * min);
    p_.ratio = std::pow(min / max, 1.0 / static_cast<double>(p_.pairs));
    p_.has_divisors = !rotary.divisors.empty();
    if (rotary.divisors.size() > kRotaryDivisors)
      fail("rotary: {} pairs with a divisor each; the CUDA device takes at most {}",
           rotary.divisors.size(), kRotaryDivisors);
    std::ranges::copy(rotary.divisors, p_.divisors);
    p_.stretched = rotary.stretch.has_value();
    if (!p_.stretched) return;
    p_.length = rotary.stretch->length;
    p_.index_step = rotary.stretch->index_step;
    p_.low = rotary.stretch->low;
    p_.inverse_span = 1.0 / (rotary.stretch->high - p_.low);
    p_.slowed = 1.0 / rotary.stretch->factor;
  }

  void set_groups(const Type& x, const Type& positions) {
    const std::vector<Axis> rows(x.axes.begin(), x.axes.end() - 1);
    IterationSpace space = collapse(sizes_of(rows), {strides_in(positions, rows)});
    std::vector<int64_t>&sizes = space.sizes, &strides = space.operands[0];
    p_.repeat = 1;
    if (!sizes.empty() && strides.back() == 0) {
      p_.repeat = sizes.back();
      sizes.pop_back(), strides.pop_back();
    }
    if (sizes.size() > kRotaryAxes)
      fail(
          "rotary: positions {} vary along {} separate axes of x, {}; at most {} work on CUDA: "
          "merge or transpose some",
          positions.text_sized(), sizes.size(), x.text_sized(), kRotaryAxes);
    p_.groups = space.elements();
    p_.num_axes = static_cast<int>(sizes.size());
    std::copy(sizes.rbegin(), sizes.rend(), p_.size);
    std::copy(strides.rbegin(), strides.rend(), p_.step);
  }

  void set_shape() {
    constexpr int64_t kMostBlocksZ = 65535;
    const int64_t pairs = std::min<int64_t>(p_.pairs, kRotaryPairs);
    p_.rows_of_block = std::max<int64_t>(kRotaryRows, ceil_div(p_.repeat, kMostBlocksZ));
    shape_.threads = kRotaryThreads;
    shape_.blocks_y = ceil_div(p_.pairs, kRotaryPairs);
    shape_.blocks_z = ceil_div(p_.repeat, p_.rows_of_block);
    // A block takes all positions that the table holds, or fewer if multiprocessors would be idle.
    const int64_t busy = ceil_div(p_.groups, 4LL * context_.multiprocessors());
    const int64_t most = std::min<int64_t>(kRotaryTable / pairs, kRotaryGroups);
    p_.groups_of_block = static_cast<int>(std::min(most, busy));
    shape_.blocks_x = ceil_div(p_.groups, p_.groups_of_block);
  }

  Context& context_;
  Function aligned_, unaligned_;
  RotaryParameters p_ = {};
  LaunchShape shape_;
  bool whole_packs_ = false;
};

const KernelRegistrar kRegisterRotary{kRotaryOp, make_kernel<RotaryKernel>};

}  // namespace
}  // namespace tessera::cuda
