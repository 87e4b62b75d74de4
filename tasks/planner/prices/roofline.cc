// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prices/roofline.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
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
#include "core/ops/send.h"

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

// Whether the two devices of a transfer are in different slices.
bool transfer_crosses_slices(const Node& transfer, const Mesh& mesh) {
  const auto mesh_axes = transfer.attributes.get(key::kMeshAxes);
  const int64_t slice = mesh.axes()[static_cast<size_t>(mesh.position(mesh_axes[0]))].ici;
  const auto pair = transfer.attributes.get(key::kGroup);
  return mesh.index_along(pair[0], mesh_axes) / slice !=
         mesh.index_along(pair[1], mesh_axes) / slice;
}

// Seconds in which a message makes its hops among so many devices. Without a topology the latency
// is that of a whole collective.
double hops_of(const Node& node, double devices, const DeviceLink& link) {
  if (!link.topology || devices <= 1.0) return link.latency;
  if (is_transfer(node) || node.op == &kPermuteOp) return link.latency;  // To one neighbour.
  const double hops =
      link.topology == LinkTopology::kTree ? std::ceil(std::log2(devices)) : devices - 1.0;
  // Reduces to the owners of parts, or to the root of the tree, and back.
  return link.latency * hops * (node.op == &kAllReduceOp ? 2.0 : 1.0);
}

// Latency of a collective with `here` devices in each of its slices. The hops within slices come
// before those between them; a latency of whole collectives includes both.
double latency_of(const Node& node, double here, double slices, bool crosses,
                  const Hardware& hardware) {
  if (!crosses) return hops_of(node, here, hardware.link);
  const double between = hops_of(node, slices, hardware.network);
  const bool adds = hardware.link.topology.has_value() && here > 1.0 && !is_transfer(node);
  return between + (adds ? hops_of(node, here, hardware.link) : 0.0);
}

// Kernels read more than their operands (halves of cache lines, partial sums): an estimate.
constexpr double kTraffic = 1.1;

double rounds_of(int64_t a, int64_t b) { return to_double((a + b - 1) / b); }

// The efficiency of matrix products by shape is that of NVIDIA's library nvMatmulHeuristics
// 0.1.0.27 (H200 SXM, bf16, CUTLASS 3 kernels), relative to its 8192×8192×8192, for which it
// predicts 978 TFLOP/s. This model of tiles agrees with it within 3 % on average and 15 % at most
// on the products of GPT-2 124M and 1558M and of Llamas of 350M to 2B. A tile takes as long as its
// sums and, for its begin and end, ProductTiles::start more of them.
struct Tile {
  int64_t m = 0, n = 0;
  double slowdown = 1.0;
};
constexpr Tile kTiles[] = {{128, 256}, {256, 128}, {128, 128, 1.1}};
constexpr double kStoresOfF32 = 2.5;  // A tile of f32 sums takes longer to store.
// Sums may be divided among multiprocessors (split-K) where there are few tiles.
constexpr int64_t kMostSplits = 32, kLeastSums = 512;

// The time of a product in multiplications of one multiprocessor.
double tile_work(const ProductSize& product, const Hardware& hardware) {
  // Slower or faster sums, but the same time to begin and end.
  double start =
      hardware.tiles->start * (peak_flops(product, hardware) / hardware.peak_flops(DType::kBF16));
  if (product.output != DType::kBF16) start *= kStoresOfF32;
  double least = 0.0;
  for (const Tile& tile : kTiles) {
    const double tiles =
        rounds_of(product.m, tile.m) * rounds_of(product.n, tile.n) * to_double(product.batches);
    for (int64_t splits = 1; splits <= kMostSplits; splits *= 2) {
      const int64_t sums = product.k / splits;
      if (splits > 1 && sums < kLeastSums) break;
      const double rounds =
          rounds_of(static_cast<int64_t>(tiles) * splits, hardware.multiprocessors->count);
      const double work =
          rounds * to_double(tile.m * tile.n) * tile.slowdown * (to_double(sums) + start);
      if (least == 0.0 || work < least) least = work;
    }
  }
  return least;
}

// The square of log2(a / b).
double squared_doublings(int64_t a, int64_t b) {
  const double logarithm =
      std::log2(to_double(std::max<int64_t>(1, a)) / to_double(std::max<int64_t>(1, b)));
  return logarithm * logarithm;
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

LaunchCost collective_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                           const Hardware& hardware) {
  double all = 1.0, slices = 1.0;
  for (const auto& name : node.attributes.get(key::kMeshAxes)) {
    const MeshAxis& axis = mesh.axes()[static_cast<size_t>(mesh.position(name))];
    all *= to_double(axis.size());
    slices *= to_double(axis.dcn);
  }
  // A receiver's link is as busy as the sender's.
  const double bytes = to_double(node.op == &kReceiveOp ? graph.type(node.outputs[0]).bytes()
                                                        : sent_bytes(graph, node));
  // Within slices first, so that only a slice's share crosses the network.
  const double here = all / slices;
  double within = 1.0;
  if (slices > 1.0) {
    within = ((here - 1.0) / here) / ((all - 1.0) / all);
    if (node.op == &kAllToAllOp) within = (here - 1.0) / (all - 1.0);
    if (node.op == &kPermuteOp) within = 0.0;  // Whole shards.
    if (is_transfer(node)) within = transfer_crosses_slices(node, mesh) ? 0.0 : 1.0;
  }
  const DeviceLink &link = hardware.link, &network = hardware.network;
  const double share = hardware.efficiency.links;
  const double on_link = bytes * within / (link.bandwidth * share);
  const double seconds = on_link + bytes * (1.0 - within) / (network.bandwidth * share);
  const bool can_switch = node.op == &kAllReduceOp && here >= 8.0;  // Less gain among fewer.
  return {.seconds = seconds + latency_of(node, here, slices, within < 1.0, hardware),
          .bytes = bytes,
          .determinism = can_switch ? on_link * (1.0 - 1.0 / link.switch_sums.value_or(1.0)) : 0.0,
          .limit = Limit::kLinks};
}

bool span_slices(const std::vector<std::string>& mesh_axes, const Mesh& mesh) {
  return std::ranges::any_of(mesh_axes, [&](const std::string& name) {
    return mesh.axes()[static_cast<size_t>(mesh.position(name))].dcn > 1;
  });
}

bool crosses_slices(const Node& collective, const Mesh& mesh) {
  return is_transfer(collective) ? transfer_crosses_slices(collective, mesh)
                                 : span_slices(collective.attributes.get(key::kMeshAxes), mesh);
}

double ProductSize::flops() const {
  return 2.0 * to_double(m) * to_double(n) * to_double(k) * to_double(batches);
}

double peak_flops(const ProductSize& product, const Hardware& hardware) {
  const double peak = hardware.peak_flops(product.input);
  return product.fp8 ? fp8_peak(hardware).value_or(peak) : peak;
}

double reachable_flops(DType dtype, const Hardware& hardware) {
  return hardware.efficiency.products * hardware.peak_flops(dtype);
}

double share_on_curve(const ProductSize& product, const ProductCurve& curve) {
  double weights = 0.0, logarithms = 0.0;
  for (const ProductPoint& point : curve.points(product.input)) {
    const double squared = squared_doublings(product.m, point.m) +
                           squared_doublings(product.n, point.n) +
                           squared_doublings(product.k, point.k);
    if (squared == 0.0) return point.share;
    const double weight = 1.0 / (squared * squared);
    weights += weight;
    logarithms += weight * std::log(point.share);
  }
  return std::exp(logarithms / weights);
}

double product_seconds(const ProductSize& product, const Hardware& hardware) {
  if (hardware.products) {
    const double share = share_on_curve(product, *hardware.products);
    return product.flops() / (share * peak_flops(product, hardware));
  }
  const double reachable = hardware.efficiency.products * peak_flops(product, hardware);
  const double at_best = product.flops() / reachable;
  if (!hardware.tiles) return at_best;
  const ProductSize large{8192, 8192, 8192, 1, product.input, DType::kBF16, product.fp8};
  const double of_large = large.flops() / reachable;
  return std::max(at_best, of_large * tile_work(product, hardware) / tile_work(large, hardware));
}

double reachable_bandwidth(const Hardware& hardware) {
  return hardware.efficiency.copies / kTraffic * hardware.memory.bandwidth;
}
double reachable_bandwidth(const Hardware& hardware, double bytes) {
  if (!hardware.memory.copies) return reachable_bandwidth(hardware);
  // Measured with kernels, so that their traffic is part of it.
  const std::vector<CopyPoint>& curve = *hardware.memory.copies;
  const auto after = std::ranges::find_if(
      curve, [&](const CopyPoint& point) { return to_double(point.bytes) >= bytes; });
  if (after == curve.begin()) return curve.front().bandwidth;
  if (after == curve.end()) return curve.back().bandwidth;
  const CopyPoint &low = *std::prev(after), &high = *after;
  const double part = std::log(bytes / to_double(low.bytes)) /
                      std::log(to_double(high.bytes) / to_double(low.bytes));
  return low.bandwidth * std::pow(high.bandwidth / low.bandwidth, part);
}

}  // namespace tessera
