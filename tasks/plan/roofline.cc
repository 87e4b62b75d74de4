// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan/roofline.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/cpu/gemm/einsum.h"
#include "core/graph/decomposition.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/grouped_product.h"
#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/passes/cost.h"

namespace tessera {
namespace {

// Kernels read more than their operands (halves of cache lines, partial sums): an estimate.
constexpr double kTraffic = 1.1;

double as_double(int64_t number) { return static_cast<double>(number); }
double ceil_div(int64_t a, int64_t b) { return as_double((a + b - 1) / b); }

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
double tile_work(const ProductSize& product, const ProductTiles& gpu, const PeakFlops& peak) {
  // Slower sums, but the same time to begin and end.
  double start = gpu.start * (peak(product.input) / peak(DType::kBF16));
  if (product.output != DType::kBF16) start *= kStoresOfF32;
  double least = 0.0;
  for (const Tile& tile : kTiles) {
    const double tiles =
        ceil_div(product.m, tile.m) * ceil_div(product.n, tile.n) * as_double(product.batches);
    for (int64_t splits = 1; splits <= kMostSplits; splits *= 2) {
      const int64_t sums = product.k / splits;
      if (splits > 1 && sums < kLeastSums) break;
      const double rounds = ceil_div(static_cast<int64_t>(tiles) * splits, gpu.multiprocessors);
      const double work =
          rounds * as_double(tile.m * tile.n) * tile.slowdown * (as_double(sums) + start);
      if (least == 0.0 || work < least) least = work;
    }
  }
  return least;
}

// Attention: published rates of cuDNN and FlashAttention-3 on an H100 (Shah et al., 2024: forward,
// not causal, 395 TFLOP/s with heads of 64 and 617 with heads of 128 at 2048 keys, 373 and 574 at
// 1024), as shares of the peak. Half a mask costs a fifth, and the backward pass runs at three
// quarters of the forward rate: estimates.
constexpr double kShareAt64 = 0.43, kShareAt128 = 0.67;
constexpr double kKeysOfStart = 148.0;
constexpr double kCausalShare = 0.8, kBackwardShare = 0.75;

double attention_share(const Graph& graph, const Node& node) {
  const double width = as_double(graph.type(node.inputs[0]).axis("head_dim").size);
  const double keys = as_double(graph.type(node.inputs[1]).axis("key_seq").size);
  const double above = std::clamp((width - 64.0) / 64.0, 0.0, 1.0);
  double share = kShareAt64 * std::min(width / 64.0, 1.0) + (kShareAt128 - kShareAt64) * above;
  share *= keys / (keys + kKeysOfStart);
  if (flag_attribute(node, "causal")) share *= kCausalShare;
  return node.op == &kAttentionGradOp ? share * kBackwardShare : share;
}

// The matrix products of a node and what is copied around them.
struct Products {
  std::vector<ProductSize> sizes;
  double flops = 0.0;
  double copied = 0.0;  // Bytes, by launches of their own.
  int64_t copies = 0;

  void add(const Graph& graph, const Node& einsum, double times);
  void add_all(const Graph& graph, double times);
  void add_decomposition(const Graph& graph, const Node& node);
  void add_grouped(const Graph& graph, const Node& node);
  double seconds(const Hardware& hardware) const;
};

void Products::add(const Graph& graph, const Node& einsum, double times) {
  const Contraction contraction = make_contraction(graph, einsum);
  const GemmShape& shape = contraction.shape;
  sizes.push_back({shape.m, shape.n, shape.k, contraction.batches() * static_cast<int64_t>(times),
                   shape.input, shape.output});
  flops += sizes.back().flops();
  const auto copy = [&](const std::optional<Packing>& packing, DType dtype) {
    if (!packing) return;
    copied += times * 2.0 * as_double(packing->elements * dtype_bytes(dtype));
    ++copies;
  };
  copy(contraction.pack_a, shape.input);
  copy(contraction.pack_b, shape.input);
  copy(contraction.pack_c, shape.output);
}

void Products::add_all(const Graph& graph, double times) {
  for (const Node& node : graph.nodes()) {
    for (const auto& [body, runs] : run_bodies(node)) add_all(*body, times * as_double(runs));
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
      1, std::llround(flops / (2.0 * as_double(std::max<int64_t>(1, matrices.elements())))));
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
  if (node.op == &kEinsumOp) {
    products.add(graph, node, 1.0);
  } else if (node.op == &kFusedProductOp) {
    const Graph& body = *node.bodies[0];
    products.add(body, *body.nodes().begin(), 1.0);
    products.sizes[0].output = graph.type(node.outputs[0]).dtype;
    if (has_pass_of_its_own(node)) {
      products.copied += 2.0 * as_double(graph.type(node.outputs[0]).bytes());
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
  LaunchCost cost{.bytes = node_bytes(graph, node), .limit = Limit::kProducts};
  const DType dtype = graph.type(node.inputs[0]).dtype;
  if (node.op == &kAttentionOp || node.op == &kAttentionGradOp) {
    cost.flops = node_flops(graph, node);
    cost.seconds = cost.flops / (hardware.peak_flops(dtype) * attention_share(graph, node));
    return cost;
  }
  const Products products = products_of(graph, node);
  const bool exact = node.op == &kEinsumOp || node.op == &kFusedProductOp;
  cost.flops = exact ? products.flops : node_flops(graph, node);
  // A decomposition may compute what a kernel skips: its rate counts.
  cost.seconds = products.flops > 0.0 ? products.seconds(hardware) * cost.flops / products.flops
                                      : cost.flops / reachable_flops(dtype, hardware);
  cost.copies = products.copied / reachable_bandwidth(hardware) +
                as_double(products.copies) * hardware.launch_overhead;
  return cost;
}

// Additions that would take the same time, of one execution.
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
  const double operations = 0.5 * peak.elementwise.value_or(peak.f32);
  return {.seconds = vector_operations(graph, node) / operations,
          .flops = node_flops(graph, node),
          .bytes = node_bytes(graph, node),
          .limit = Limit::kArithmetic};
}

// Whether the two devices of a transfer are in different slices.
bool transfer_crosses_slices(const Node& transfer, const Mesh& mesh) {
  const auto mesh_axes = transfer.attributes.get<std::vector<std::string>>("mesh_axes");
  const int64_t slice = mesh.axes()[static_cast<size_t>(mesh.position(mesh_axes[0]))].ici;
  const auto pair = transfer.attributes.get<std::vector<int64_t>>("group");
  return mesh.index_along(pair[0], mesh_axes) / slice !=
         mesh.index_along(pair[1], mesh_axes) / slice;
}

LaunchCost collective_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                           const Hardware& hardware) {
  double all = 1.0, slices = 1.0;
  for (const auto& name : node.attributes.get<std::vector<std::string>>("mesh_axes")) {
    const MeshAxis& axis = mesh.axes()[static_cast<size_t>(mesh.position(name))];
    all *= as_double(axis.size());
    slices *= as_double(axis.dcn);
  }
  // A receiver's link is as busy as the sender's.
  const double bytes = as_double(node.op == &kReceiveOp ? graph.type(node.outputs[0]).bytes()
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
  const double seconds = bytes * within / (link.bandwidth * share) +
                         bytes * (1.0 - within) / (network.bandwidth * share);
  return {.seconds = seconds + (within < 1.0 ? network.latency : link.latency),
          .bytes = bytes,
          .limit = Limit::kLinks};
}

}  // namespace

double ProductSize::flops() const {
  return 2.0 * as_double(m) * as_double(n) * as_double(k) * as_double(batches);
}

double reachable_flops(DType dtype, const Hardware& hardware) {
  return hardware.efficiency.products * hardware.peak_flops(dtype);
}
double reachable_bandwidth(const Hardware& hardware) {
  return hardware.efficiency.copies / kTraffic * hardware.memory.bandwidth;
}

double best_share(const Hardware& hardware) {
  return std::max(hardware.efficiency.products, kShareAt128);
}

double product_seconds(const ProductSize& product, const Hardware& hardware) {
  const double at_best = product.flops() / reachable_flops(product.input, hardware);
  if (!hardware.tiles) return at_best;
  const ProductSize large{8192, 8192, 8192, 1, product.input, DType::kBF16};
  const double of_large = large.flops() / reachable_flops(product.input, hardware);
  const auto work = [&](const ProductSize& size) {
    return tile_work(size, *hardware.tiles, hardware.peak_flops);
  };
  return std::max(at_best, of_large * work(product) / work(large));
}

bool crosses_slices(const Node& collective, const Mesh& mesh) {
  if (is_transfer(collective)) return transfer_crosses_slices(collective, mesh);
  const auto mesh_axes = collective.attributes.get<std::vector<std::string>>("mesh_axes");
  return std::ranges::any_of(mesh_axes, [&](const std::string& name) {
    return mesh.axes()[static_cast<size_t>(mesh.position(name))].dcn > 1;
  });
}

LaunchCost launch_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                       const Hardware& hardware) {
  if (is_collective(node)) return collective_cost(graph, node, mesh, hardware);
  LaunchCost cost = node.op->op_class == OpClass::kContraction
                        ? contraction_cost(graph, node, hardware)
                        : vector_cost(graph, node, hardware);
  const double memory = cost.bytes / reachable_bandwidth(hardware);
  if (memory > cost.seconds) {
    cost.seconds = memory;
    cost.limit = Limit::kMemory;
  }
  if (cost.seconds < hardware.launch_overhead) cost.limit = Limit::kLaunch;
  cost.seconds += cost.copies + hardware.launch_overhead;
  return cost;
}

}  // namespace tessera
