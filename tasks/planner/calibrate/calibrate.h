// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate: measures the CPU device on this machine with its own kernels and writes the
// rates as a hardware file, from which --mode=plan predicts steps (docs/hardware.md). Which kernels
// it measures, and at which sizes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/check/bench_cases.h"
#include "core/graph/graph.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

enum class CalibrationSize {
  kFull,   // A minute or two.
  kQuick,  // Small operands and few repetitions, in seconds: rough figures.
};

struct CalibrateOptions {
  // Devices that compute at the same time, as the devices of a process do, and their threads
  // together.
  int64_t devices = 1;
  int threads = 1;
  CalibrationSize size = CalibrationSize::kFull;
  std::filesystem::path output;                         // The file to write.
  bool replaces = false;                                // An existing file.
  std::function<void(const std::string& line)> report;  // Called with each line of the table.
};

// Error if the file exists and is not to be replaced, or cannot be written, before anything is
// measured.
void check_output(const CalibrateOptions& options);

// Measures, writes the file and returns its content.
Hardware calibrate(const CalibrateOptions& options);

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
