// SPDX-License-Identifier: Apache-2.0
// Which kernels a calibration measures, and at which sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/check/bench_cases.h"
#include "core/graph/graph.h"

namespace tessera {

enum class CalibrationSize {
  kFull,   // A minute or two.
  kQuick,  // Small operands and few repetitions, in seconds: rough figures.
};

// Ops other than products that have operations to count: composite ops, reductions and elementwise
// ops, alone and in fused loops, at the sizes of a layer's activations.
std::vector<BenchCase> calibration_cases(CalibrationSize size);

// The graph of a case, with gradients and fused like a step's graph.
Graph calibration_graph(const BenchCase& row);

// m×k · k×n, shapes of models: activations times weights, their gradients, and small ones.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
};
std::vector<ProductShape> calibration_products(CalibrationSize size);

// A graph with one einsum, as layers have them: x["row in"] and w["in out"]. The gradient of a
// weight, where sums are long, sums over the rows of both operands.
Graph product_graph(const ProductShape& shape, DType dtype);

// The graphs of devices with one all_gather, reduce_scatter or all_reduce of f32, whose longer
// array has so many bytes.
std::vector<Graph> collective_graphs(const OpDef& op, int64_t devices, int64_t bytes);

// A graph with one copy of so many bytes, counted in the source and in the result.
Graph copy_graph(int64_t bytes);

}  // namespace tessera
