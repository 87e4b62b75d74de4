// SPDX-License-Identifier: Apache-2.0
// Rotary embedding: rows are shared out among threads; a table serves the run of rows that have its
// position (the heads of one token).
#include "core/ops/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/backend/cpu/composite_kernel.h"
#include "core/backend/cpu/rotary_kernels.h"

namespace tessera {
namespace {

class RotaryKernel final : public HostKernel {
 public:
  RotaryKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : dtype_(vector_dtype(graph, node, 0)),
        pairs_(graph.type(node.inputs[0]).axes.back().size / 2),
        count_(graph.type(node.inputs[0]).elements() / (2 * pairs_)),
        interleaved_(flag_attribute(node, "interleaved")),
        team_(team) {
    const double min = node.attributes.get<double>("min_timescale");
    const double max = node.attributes.get<double>("max_timescale");
    const double sign = flag_attribute(node, "inverse") ? -1.0 : 1.0;
    for (int64_t i = 0; i < pairs_; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(pairs_);
      frequency_.push_back(sign * stretched(1.0 / (min * std::pow(max / min, exponent)), node));
    }
    set_steps(graph.type(node.inputs[0]), graph.type(node.inputs[1]));
  }

  // A cosine and a sine table for every thread.
  int64_t scratch_bytes() const override {
    return 2 * team_.size() * padded_floats(pairs_) * static_cast<int64_t>(sizeof(float));
  }
  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    const int32_t* positions = input_as<int32_t>(args, 1);
    const int64_t grain = std::max<int64_t>(1, 2048 / pairs_);
    team_.parallel(count_, grain, [&](Range range, int thread) {
      float* cosine = reinterpret_cast<float*>(args.scratch) + 2 * thread * padded_floats(pairs_);
      float* sine = cosine + padded_floats(pairs_);
      for (int64_t begin = range.begin; begin < range.end;) {
        const int32_t position = positions[position_index(begin)];
        int64_t end = begin + 1;
        while (end < range.end && positions[position_index(end)] == position) ++end;
        rotary_table(pairs_, frequency_.data(), position, cosine, sine);
        rotary_rows(dtype_, interleaved_, pairs_, cosine, sine, args.inputs[0], args.outputs[0],
                    begin, end);
        begin = end;
      }
    });
  }

 private:
  // One of x's row axes, innermost first, and how far a step along it leads in the positions.
  struct RowAxis {
    int64_t size, step;
  };

  static double stretched(double frequency, const Node& node) {
    if (!node.attributes.has("stretch_factor")) return frequency;
    const auto number = [&](const char* name) { return node.attributes.get<double>(name); };
    const double low = number("stretch_low"), high = number("stretch_high");
    const double turns = frequency * number("stretch_length") / (2.0 * std::numbers::pi);
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    return frequency * (kept + (1.0 - kept) / number("stretch_factor"));
  }

  void set_steps(const Type& x, const Type& positions) {
    for (size_t i = x.axes.size() - 1; i-- > 0;) {
      int64_t step = 0;
      if (const int64_t at = positions.find(x.axes[i].name); at >= 0) {
        step = 1;
        for (size_t j = static_cast<size_t>(at) + 1; j < positions.axes.size(); ++j)
          step *= positions.axes[j].size;
      }
      rows_.push_back({x.axes[i].size, step});
    }
  }

  int64_t position_index(int64_t row) const {
    int64_t index = 0;
    for (const RowAxis& axis : rows_) {
      index += row % axis.size * axis.step;
      row /= axis.size;
    }
    return index;
  }

  DType dtype_;
  int64_t pairs_, count_;
  bool interleaved_;
  std::vector<double> frequency_;
  std::vector<RowAxis> rows_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterRotary{kRotaryOp, make_kernel<RotaryKernel>};

}  // namespace
}  // namespace tessera
