// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_program.h"

#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

// All values of a pool are f32["row=2 column=4"] or f32["column=4"].
class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed) {}

  void trace() {
    Tensors states, pool;
    const int parameters = 2 + pick(3);
    for (int i = 0; i < parameters; ++i)
      pool.push_back(
          parameter(fmt::format("p{}", i), pick(3) == 0 ? "column=4" : "row=2 column=4"));
    stack_ = parameter("stack", "layers=3 column=4");
    for (int i = 0; i < 3; ++i) {
      states.push_back(
          input(fmt::format("s{}", i), InputKind::kState, parse_type("f32[\"row=2 column=4\"]")));
      if (pick(2) == 0) pool.push_back(states.back());
    }
    pool.push_back(input("x", InputKind::kBatch, parse_type("f32[\"row=2 column=4\"]")));
    grow(pool, 6 + pick(14), 2);
    update(states, pool, trace_gradients(pool));
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  Tensor any(const Tensors& pool) {
    return pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))];
  }

  Tensor parameter(const std::string& name, const std::string& axes) {
    parameters_.push_back(input(name, InputKind::kParameter, parse_type("f32[\"" + axes + "\"]")));
    return parameters_.back();
  }

  // Adds `count` values; loops are nested at most `depth` deep.
  void grow(Tensors& pool, int count, int depth) {
    for (int i = 0; i < count; ++i) {
      if (depth > 0 && pick(6) == 0) {
        add_loop(pool, depth);
      } else if (depth == 2 && pick(6) == 0) {
        const RematScope region;
        for (int k = 0; k < 3; ++k) pool.push_back(step(pool));
      } else {
        pool.push_back(step(pool));
      }
    }
  }

  Tensor full(const Tensor& x) {
    return x.has("row") ? x : broadcast(x, {Axis{"row", 2, {}}}, "row column");
  }

  Tensor step(const Tensors& pool) {
    const Tensor a = any(pool), b = any(pool);
    switch (pick(12)) {
      case 0:
        return tanh(a + b);
      case 1:
        return a * sigmoid(b);
      case 2:
        return save_for_backward(sin(a), pick(2) == 0 ? "kept" : "other");
      case 3:
        // A condition that does not depend on rounding.
        return where(less(iota(Axis{"column", 4, {}}), constant(2, DType::kI32)), scale(a, 0.5), b);
      case 4:
        return reduce_mean(full(a), "row");
      case 5:
        return mixed(a, b);
      case 6:
        return transpose(scale(transpose(full(a), "column row"), 0.7), "row column");
      case 7:
        return concat({slice(full(a), "row", 1, 2), slice(full(b), "row", 0, 1)}, "row");
      case 8: {
        const Tensor parts =
            split_axis(full(a), "column", Axis{"half", 2, {}}, Axis{"pair", 2, {}});
        return merge_axes(neg(parts), "half", "pair", "column");
      }
      case 9:
        return a +
               constant(0.25, DType::kF32) * cast(iota(Axis{"column", 4, {}}), DType::kF32) * 0.1;
      case 10:
        return pad(slice(a, "column", 1, 4), "column", 1, 0);
      default:
        return a - scale(b, 0.3);
    }
  }

  // a·(bᵀb)/4 over columns: a contraction that keeps the axes.
  Tensor mixed(const Tensor& a, const Tensor& b) {
    const Tensor wide = full(b);
    const Tensor gram = einsum(wide, rename(wide, "column", "other"), over("row"));
    return rename(scale(einsum(full(a), gram, over("column")), 0.25), "other", "column");
  }

  void add_loop(Tensors& pool, int depth) {
    const bool saves = pick(2) == 0;
    const Tensor carried = full(any(pool)), constant_used = any(pool);
    const RepeatResult result =
        repeat(depth == 2 ? "layers" : "inner", depth == 2 ? 3 : 2, {carried, full(any(pool))}, {},
               [&](Tensor index, Tensors carries, Tensors) {
                 Tensors body = {carries[0], carries[1], constant_used};
                 if (depth == 2) body.push_back(loop_slice(stack_));
                 grow(body, 2 + pick(4), depth - 1);
                 if (pick(3) == 0)
                   body.push_back(carries[0] * scale(cast(index, DType::kF32), 0.2));
                 const Tensor next = full(body.back());
                 const Tensor other = pick(2) == 0 ? carries[0] : full(any(body));
                 Tensors slices;
                 if (saves) slices = {full(any(body)), carries[1]};
                 return RepeatBody{{next, other}, slices};
               });
    pool.push_back(result.carries[pick(2) == 0 ? 0u : 1u]);
    pool.push_back(result.carries[0]);
    for (const Tensor& stacked : result.stacked)
      pool.push_back(reduce_mean(stacked, depth == 2 ? "layers" : "inner"));
  }

  Tensors trace_gradients(const Tensors& pool) {
    Tensor loss = reduce_sum(square(full(pool.back())));
    for (int i = 0; i < 3; ++i) loss = loss + reduce_sum(full(any(pool)) * full(any(pool)));
    output("loss", loss);
    return gradients(loss, parameters_);
  }

  void update(const Tensors& states, const Tensors& pool, const Tensors& gradient) {
    const PhaseScope phase(Phase::kUpdate);
    Graph& graph = traced_graph();
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (pick(5) != 0)
        graph.add_update(graph.value(parameters_[i].id()).name,
                         (parameters_[i] - sin(gradient[i] * 0.01)).id());
    graph.add_update("s0", full(any(pool)).id());
    graph.add_update("s1", pick(2) == 0 ? states[0].id() : (states[1] * 0.5).id());
    graph.add_update("s2", pick(2) == 0 ? states[1].id() : (states[2] + states[0] * 0.1).id());
    output("some", any(pool));
  }

  std::mt19937_64 random_;
  Tensors parameters_;
  Tensor stack_;
};

}  // namespace

Graph random_program(uint64_t seed) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  Program(seed).trace();
  return graph;
}

}  // namespace tessera
