// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/linear_recurrence.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/multiples.h"
#include "core/ops/linear_recurrence.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {
namespace {

using Operands = RecurrenceOperands;

RecurrenceLines lines_of(int key_dim, int value_dim, bool columns) {
  RecurrenceLines of = {.inner = columns ? key_dim : value_dim,
                        .outer = columns ? value_dim : key_dim,
                        .lanes = 1,
                        .columns = columns};
  while (of.lanes * kRecurrenceHeld < of.inner) of.lanes *= 2;
  of.lines = std::min(kRecurrenceLines, kRecurrenceThreads / of.lanes);
  of.groups = static_cast<int>(ceil_div(of.outer, of.lines));
  of.tokens = std::min(kRecurrenceTokens, kRecurrenceParts / of.lanes);
  return of;
}

// What the kernels of the op and of its gradient have in common.
class RecurrenceKernel : public CudaKernel {
 protected:
  RecurrenceKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context), at_(node.attributes), dtype_(float_suffix(graph, node, node.inputs[0])) {
    const Type& q = graph.type(node.inputs[Operands::kQuery]);
    const Type& v = graph.type(node.inputs[Operands::kValue]);
    p_.batch = q.axes[0].size;
    p_.seq = static_cast<int>(q.axes[1].size);
    p_.heads = q.axes[2].size;
    p_.key_dim = dim_of(q), p_.value_dim = dim_of(v);
    p_.delta = at_.delta;
    columns_ = lines_of(p_.key_dim, p_.value_dim, true);
    rows_ = lines_of(p_.key_dim, p_.value_dim, false);
    const int64_t pack = 16 / dtype_bytes(q.dtype);
    whole_packs_ = p_.key_dim % pack == 0 && p_.value_dim % pack == 0;
  }

  Function function(const std::string& name) const {
    return context_.function("linear_recurrence", name);
  }
  std::string with_dtype(std::string_view name) const { return fmt::format("{}_{}", name, dtype_); }

  RecurrenceParameters parameters(const LaunchArgs& args) const {
    const auto read = [&](size_t i) { return pointer_as<const float>(args.inputs[i]); };
    RecurrenceParameters p = p_;
    p.query = read(Operands::kQuery), p.key = read(Operands::kKey);
    p.value = read(Operands::kValue);
    p.log_decay = read(Operands::kLogDecay), p.beta = read(Operands::kBeta);
    if (at_.has_segments) p.segments = pointer_as<const int32_t>(args.inputs[at_.segments]);
    if (at_.has_state) p.state = read(at_.state);
    const auto at_16_bytes = [](DeviceAddress address) { return address.value() % 16 == 0; };
    p.aligned = whole_packs_ && std::ranges::all_of(args.inputs, at_16_bytes) &&
                std::ranges::all_of(args.outputs, at_16_bytes);
    return p;
  }
  void start(CUstream stream, const Function& function, const RecurrenceLines& of,
             RecurrenceParameters& p) const {
    p.of = of;
    const LaunchShape shape{.blocks_x = p.batch * p.heads * of.groups,
                            .threads = of.lanes * of.lines};
    launch(context_, stream, function, shape, p);
  }

  Context& context_;
  const Operands at_;
  const std::string dtype_;
  RecurrenceParameters p_ = {};
  RecurrenceLines columns_, rows_;

 private:
  static int dim_of(const Type& x) {
    const Axis& axis = x.axes.back();
    if (axis.size > kRecurrenceWidest)
      fail(
          "linear_recurrence: {} is {} in {}; the CUDA device takes at most {}: choose smaller "
          "heads, and more of them",
          axis.name, axis.size, x.text_sized(), kRecurrenceWidest);
    return static_cast<int>(axis.size);
  }

  bool whole_packs_ = false;
};

class LinearRecurrenceKernel final : public RecurrenceKernel {
 public:
  LinearRecurrenceKernel(const Graph& graph, const Node& node, Context& context)
      : RecurrenceKernel(graph, node, context), function_(function(with_dtype(node.op->name))) {}

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    RecurrenceParameters p = parameters(args);
    p.out = pointer_as<void>(args.outputs[0]);
    p.last_state = pointer_as<float>(args.outputs[1]);
    start(stream, function_, columns_, p);
  }

 private:
  Function function_;
};

class LinearRecurrenceGradKernel final : public RecurrenceKernel {
 public:
  LinearRecurrenceGradKernel(const Graph& graph, const Node& node, Context& context)
      : RecurrenceKernel(graph, node, context),
        differences_(function(with_dtype("linear_recurrence"))),
        values_(function(with_dtype("linear_recurrence_values"))),
        queries_(function(with_dtype("linear_recurrence_queries"))),
        keys_(function(with_dtype("linear_recurrence_keys"))),
        gates_(function("linear_recurrence_gates")) {
    p_.beta_groups = columns_.groups, p_.decay_groups = rows_.groups;
  }

  int64_t scratch_bytes() const override {
    RecurrenceParameters p = p_;
    return set_scratch(p, 0) * static_cast<int64_t>(sizeof(float));
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const auto written = [&](size_t i) { return pointer_as<float>(args.outputs[i]); };
    RecurrenceParameters p = parameters(args);
    set_scratch(p, args.scratch.value());
    p.cotangent = pointer_as<const void>(args.inputs[at_.out_cotangent]);
    if (at_.has_final)
      p.final_cotangent = pointer_as<const float>(args.inputs[at_.final_cotangent]);
    p.dquery = written(Operands::kQuery), p.dkey = written(Operands::kKey);
    p.dvalue = written(Operands::kValue);
    p.dlog_decay = written(Operands::kLogDecay), p.dbeta = written(Operands::kBeta);
    if (at_.has_state) p.dstate = written(Operands::kBeta + 1);
    start(stream, differences_, columns_, p);
    start(stream, values_, columns_, p);
    start(stream, queries_, rows_, p);
    start(stream, keys_, rows_, p);
    const LaunchShape shape{.blocks_x = ceil_div(p.batch * p.heads, kRecurrenceThreads / 32),
                            .threads = kRecurrenceThreads};
    launch(context_, stream, gates_, shape, p);
  }

 private:
  // Sets the addresses in scratch memory at `begin`, and returns its size in elements.
  int64_t set_scratch(RecurrenceParameters& p, uint64_t begin) const {
    const int64_t heads = p.batch * p.heads, tokens = heads * p.seq;
    int64_t elements = 0;
    const auto take = [&](int64_t count) {
      const DeviceAddress at(begin + static_cast<uint64_t>(elements) * sizeof(float));
      elements += count;
      return pointer_as<float>(at);
    };
    p.difference = take(tokens * p.value_dim);
    p.dadded = take(tokens * p.value_dim);
    if (p.delta) p.delta_dkey = take(tokens * p.key_dim);
    p.beta_parts = take(tokens * p.beta_groups);
    p.decay_parts = take(tokens * p.decay_groups);
    p.last_parts = take(heads * p.beta_groups);
    return elements;
  }

  Function differences_, values_, queries_, keys_, gates_;
};

const KernelRegistrar kRegisterRecurrence{kLinearRecurrenceOp, make_kernel<LinearRecurrenceKernel>};
const KernelRegistrar kRegisterRecurrenceGrad{kLinearRecurrenceGradOp,
                                              make_kernel<LinearRecurrenceGradKernel>};

}  // namespace
}  // namespace tessera::cuda
