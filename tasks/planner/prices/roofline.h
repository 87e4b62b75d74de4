// SPDX-License-Identifier: Apache-2.0
// The time of one launch on a device, predicted from its types: the roofline of Williams, Waterman
// and Patterson (2009), with what kernels reach of each limit. Costs are facts of the op (OpDef),
// so that a new op has a price without an edit here. What belongs to the device is in its hardware
// file, what belongs to kernels in roofline.cc, each with its source. Nothing was measured by this
// program. The hardware file chooses how a matrix product is priced: by the tiles of a GPU, by a
// measured curve of efficiency over shapes, or at one fraction of the peak for all shapes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

// What a launch waits for most.
enum class Limit { kProducts, kArithmetic, kMemory, kLinks, kLaunch };

// What a launch costs.
struct LaunchCost {
  double seconds = 0.0;      // With the gap before the next launch.
  double copies = 0.0;       // The part of it that copies operands or results of a product.
  double flops = 0.0;        // Executed; for contractions those of their matrix products.
  double bytes = 0.0;        // Moved in memory; for collectives, sent.
  double determinism = 0.0;  // The part of it that task.train.deterministic=false saves.
  Limit limit = Limit::kMemory;
  std::string_view kernels;  // For attention, whose kernels were priced: "own"; else empty.
};

// Prices a node of a lowered graph that is neither a loop nor a view.
LaunchCost launch_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                       const Hardware& hardware);

// Peak FLOP/s of the contractions of a node, by the dtype of its operands; that of 8-bit floats
// where the device multiplies those.
double product_peak(const Graph& graph, const Node& node, const Hardware& hardware);

// Operations of a launch, as KernelRate counts them.
double kernel_operations(const Graph& graph, const Node& node);

struct AttentionPrice {
  AttentionKernels kernels = AttentionKernels::kPublished;
  double seconds = 0.0;
  double determinism = 0.0;  // The part of it that task.train.deterministic=false saves.
};
// Prices a node of `flops` FLOPs, without its bytes and the overhead of one launch.
AttentionPrice attention_price(const Graph& graph, const Node& node, double flops,
                               const Hardware& hardware);

// Prices a collective of a lowered graph that is alone on its links.
LaunchCost collective_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                           const Hardware& hardware);

// Whether one of the mesh axes spans slices, and whether a collective uses the links between them.
bool span_slices(const std::vector<std::string>& mesh_axes, const Mesh& mesh);
bool crosses_slices(const Node& collective, const Mesh& mesh);

// Sizes and counts enter prices as floating point numbers.
inline double to_double(int64_t number) { return static_cast<double>(number); }

// The size of a matrix product, batches × (m×k · k×n).
struct ProductSize {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  DType input = DType::kBF16, output = DType::kBF16;
  bool fp8 = false;  // Operands are rounded to 8 bits, for a device that multiplies those.

  double flops() const;
};
double peak_flops(const ProductSize& product, const Hardware& hardware);
double product_seconds(const ProductSize& product, const Hardware& hardware);

// FLOP/s that products of large matrices reach.
double reachable_flops(DType dtype, const Hardware& hardware);

// The share of the peak at a shape: that of a point of the curve; elsewhere the geometric mean of
// all points, weighted by the inverse fourth power of their distance (Shepard, 1968) in the
// logarithms of m, n and k.
double share_on_curve(const ProductSize& product, const ProductCurve& curve);

// Bandwidth in bytes per second that kernels reach if memory limits them: with large operands, and
// with operands and results of so many bytes, by the measured curve of copies if there is one.
double reachable_bandwidth(const Hardware& hardware);
double reachable_bandwidth(const Hardware& hardware, double bytes);

}  // namespace tessera
