// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prices/roofline.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/cost.h"
#include "core/devices/contraction.h"
#include "core/graph/decomposition.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/grouped_product.h"
#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// The entry of the file for kernels of this op. Elementwise ops without an entry run as fused loops
// do.
const KernelRate* kernel_rate(const Node& node, const Hardware& hardware) {
  if (hardware.kernels.empty()) return nullptr;
  auto found = hardware.kernels.find(std::string(node.op->name));
  if (found == hardware.kernels.end() && node.op->op_class == OpClass::kElementwise)
    found = hardware.kernels.find(std::string(kFusedOp.name));
  return found == hardware.kernels.end() ? nullptr : &found->second;
}

DType dtype_of(const Graph& graph, const Node& node) {
  return graph.type(node.inputs.empty() ? node.outputs[0] : node.inputs[0]).dtype;
}

LaunchCost attention_cost(const Graph& graph, const Node& node, const Hardware& hardware) {
  LaunchCost cost{.flops = node_flops(graph, node),
                  .bytes = node_bytes(graph, node),
                  .limit = Limit::kProducts};
  if (const KernelRate* const rate = kernel_rate(node, hardware)) {
    const double width = to_double(graph.type(node.inputs[0]).axis("head_dim").size);
    cost.seconds =
        cost.flops / (*rate)(dtype_of(graph, node)) * (1.0 + rate->start.value_or(0.0) / width);
    return cost;
  }
  const AttentionPrice price = attention_price(graph, node, cost.flops, hardware);
  cost.seconds = price.seconds;
  cost.determinism = price.determinism;
  cost.kernels = enum_name(price.kernels);
  return cost;
}

// The matrix products of a node and what is copied around them.
struct Products {
  std::vector<ProductSize> sizes;
  double flops = 0.0;
  double copied = 0.0;  // Bytes, by launches of their own.
  int64_t copies = 0;

  void add(const Graph& graph, const Node& product, double times);  // einsum or fp8_product.
  void add_all(const Graph& graph, double times);
  void add_decomposition(const Graph& graph, const Node& node);
  void add_grouped(const Graph& graph, const Node& node);
  double seconds(const Hardware& hardware) const;
};

void Products::add(const Graph& graph, const Node& product, double times) {
  const Contraction contraction = make_contraction(graph, product);
  const GemmShape& shape = contraction.shape;
  sizes.push_back({shape.m, shape.n, shape.k, contraction.batches() * static_cast<int64_t>(times),
                   shape.input, shape.output});
  flops += sizes.back().flops();
  const auto copy = [&](const std::optional<Packing>& packing, DType dtype) {
    if (!packing) return;
    copied += times * 2.0 * to_double(packing->elements * dtype_bytes(dtype));
    ++copies;
  };
  copy(contraction.pack_a, shape.input);
  copy(contraction.pack_b, shape.input);
  copy(contraction.pack_c, shape.output);
  if (product.op != &kFp8ProductOp) return;
  // A launch for each operand reads it and writes it in 8 bits.
  sizes.back().fp8 = true;
  for (const size_t operand : {0, 1}) {
    const Type& type = graph.type(product.inputs[operand]);
    copied += times * to_double(type.bytes() + type.elements());
    ++copies;
  }
}

void Products::add_all(const Graph& graph, double times) {
  for (const Node& node : graph.nodes()) {
    for (const auto& [body, runs] : run_bodies(node)) add_all(*body, times * to_double(runs));
    if (node.op == &kEinsumOp) {
      add(graph, node, times);
    } else if (node.op->op_class == OpClass::kContraction) {
      add_decomposition(graph, node);
    }
  }
}

// The products of an op with a kernel of its own are those of its decomposition, with its operands'
// dtype.
void Products::add_decomposition(const Graph& graph, const Node& node) {
  if (node.op->decomposition == nullptr) return;
  add_all(decomposition_of(graph, node, Mesh()), 1.0);
  const DType dtype = graph.type(node.inputs[0]).dtype;
  for (ProductSize& size : sizes) size.input = dtype;
  copied = 0.0, copies = 0;
}

// A product for each position of the chosen axis, with an equal share of the rows: a row is
// multiplied by its own matrix only.
void Products::add_grouped(const Graph& graph, const Node& node) {
  const bool outer = node.op == &kGroupedOuterProductOp;
  const Type& matrices = graph.type(outer ? node.outputs[0] : node.inputs[0]);
  const int64_t groups = matrices.axes.front().size;
  flops = node_flops(graph, node);
  const auto rows = std::max<int64_t>(
      1, std::llround(flops / (2.0 * to_double(std::max<int64_t>(1, matrices.elements())))));
  ProductSize size{.batches = groups, .input = matrices.dtype, .output = matrices.dtype};
  if (outer) {
    size.m = matrices.axes[1].size, size.n = matrices.axes[2].size, size.k = rows;
  } else {
    size.m = rows, size.n = graph.type(node.outputs[0]).axes.back().size;
    size.k = graph.type(node.inputs[1]).axes.back().size;
  }
  sizes.push_back(size);
}

double Products::seconds(const Hardware& hardware) const {
  double total = 0.0;
  for (const ProductSize& size : sizes) total += product_seconds(size, hardware);
  return total;
}

// Whether cuBLASLt has no epilogue for what follows a product, which is then a pass over the
// result.
bool has_pass_of_its_own(const Node& fused_product) {
  return std::ranges::any_of(fused_product.bodies[0]->nodes(), [](const Node& each) {
    return each.op == &kSiluOp || each.op == &kSiluGradOp;
  });
}

Products products_of(const Graph& graph, const Node& node) {
  Products products;
  if (node.op == &kEinsumOp || node.op == &kFp8ProductOp) {
    products.add(graph, node, 1.0);
  } else if (node.op == &kFusedProductOp) {
    const Graph& body = *node.bodies[0];
    products.add(body, *body.nodes().begin(), 1.0);
    products.sizes[0].output = graph.type(node.outputs[0]).dtype;
    if (has_pass_of_its_own(node)) {
      products.copied += 2.0 * to_double(graph.type(node.outputs[0]).bytes());
      ++products.copies;
    }
  } else if (node.op == &kGroupedProductOp || node.op == &kGroupedOuterProductOp) {
    products.add_grouped(graph, node);
  } else {
    products.add_decomposition(graph, node);
  }
  return products;
}

LaunchCost contraction_cost(const Graph& graph, const Node& node, const Hardware& hardware) {
  if (node.op == &kAttentionOp || node.op == &kAttentionGradOp)
    return attention_cost(graph, node, hardware);
  LaunchCost cost{.bytes = node_bytes(graph, node), .limit = Limit::kProducts};
  const DType dtype = graph.type(node.inputs[0]).dtype;
  if (const KernelRate* const rate = kernel_rate(node, hardware)) {
    cost.flops = node_flops(graph, node);
    cost.seconds = cost.flops / (*rate)(dtype);
    return cost;
  }
  const Products products = products_of(graph, node);
  const bool exact =
      node.op == &kEinsumOp || node.op == &kFp8ProductOp || node.op == &kFusedProductOp;
  cost.flops = exact ? products.flops : node_flops(graph, node);
  // A decomposition may compute what a kernel skips: its rate counts.
  cost.seconds = products.flops > 0.0 ? products.seconds(hardware) * cost.flops / products.flops
                                      : cost.flops / reachable_flops(dtype, hardware);
  cost.copies = products.copied / reachable_bandwidth(hardware, products.copied) +
                to_double(products.copies) * hardware.launch_overhead;
  return cost;
}

// Number of additions that take as long as one execution of the node.
double vector_operations(const Graph& graph, const Node& node) {
  if (node.bodies.empty()) return node_flops(graph, node) * node.op->element.cost;
  double total = 0.0;
  for (const Node& inner : node.bodies[0]->nodes())
    total += vector_operations(*node.bodies[0], inner);
  return total;
}

LaunchCost vector_cost(const Graph& graph, const Node& node, const Hardware& hardware) {
  // An instruction of a lane multiplies and adds.
  const PeakFlops& peak = hardware.peak_flops;
  const KernelRate* const rate = kernel_rate(node, hardware);
  const double operations =
      rate != nullptr ? (*rate)(dtype_of(graph, node)) : 0.5 * peak.elementwise.value_or(peak.f32);
  return {.seconds = vector_operations(graph, node) / operations,
          .flops = node_flops(graph, node),
          .bytes = node_bytes(graph, node),
          .limit = Limit::kArithmetic};
}

}  // namespace

double product_peak(const Graph& graph, const Node& node, const Hardware& hardware) {
  const bool is_fused = node.op == &kFusedProductOp;
  const OpDef* const op = is_fused ? node.bodies[0]->nodes().begin()->op : node.op;
  const double peak = hardware.peak_flops(graph.type(node.inputs[0]).dtype);
  return op == &kFp8ProductOp ? fp8_peak(hardware).value_or(peak) : peak;
}

double kernel_operations(const Graph& graph, const Node& node) {
  return node.op->op_class == OpClass::kContraction ? node_flops(graph, node)
                                                    : vector_operations(graph, node);
}

LaunchCost launch_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                       const Hardware& hardware) {
  if (is_collective(node)) return collective_cost(graph, node, mesh, hardware);
  LaunchCost cost = node.op->op_class == OpClass::kContraction
                        ? contraction_cost(graph, node, hardware)
                        : vector_cost(graph, node, hardware);
  const double memory = cost.bytes / reachable_bandwidth(hardware, cost.bytes);
  if (memory > cost.seconds) {
    cost.seconds = memory;
    cost.limit = Limit::kMemory;
  }
  if (cost.seconds < hardware.launch_overhead) cost.limit = Limit::kLaunch;
  cost.seconds += cost.copies + hardware.launch_overhead;
  return cost;
}

}  // namespace tessera
