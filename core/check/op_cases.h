// SPDX-License-Identifier: Apache-2.0
// Test cases of ops: how to call an op, and with which operands. Tests and runexp --mode=selfcheck
// compare gradients with finite differences, and kernels with the reference interpreter. Cases of
// elementwise ops are derived from their scalar functions (OpDef::element); cases of other ops are
// in op_cases_*.cc.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/devices/device.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/op.h"

namespace tessera {

using Tensors = std::vector<Tensor>;

// The results of a case: one tensor or several.
struct CaseResults : Tensors {
  CaseResults(Tensor result) : Tensors{std::move(result)} {}     // NOLINT: implicit.
  CaseResults(Tensors results) : Tensors(std::move(results)) {}  // NOLINT: implicit.
};

struct OpCase {
  const OpDef* op = nullptr;        // The op under test; the trace must contain it.
  std::vector<std::string> inputs;  // Types. "float[…]" takes each floating dtype under test.
  std::function<CaseResults(const Tensors&)> build;

  bool differentiable = true;  // Whether it is so in the floating inputs, at the sample points.
  int ids = 3;                 // Integers are drawn from [0, ids).
  // Tolerances of a backend's results, relative to the largest element of a result.
  double tolerance_f32 = 1e-5;
  double tolerance_bf16 = 2e-2;
  std::optional<double> tolerance_f32_of_kernel;  // Where the op is not run as its decomposition.
};

// Tolerance of products of 8-bit floats in f32: tensor cores add them with fewer bits than f32 has.
inline constexpr double kFp8KernelTolerance = 2e-3;

// Appends a case with the defaults, to be changed.
OpCase& add_case(std::vector<OpCase>& rows, const OpDef& op, std::vector<std::string> inputs,
                 std::function<CaseResults(const Tensors&)> build);

// Returns the family that a case is reported under: "elementwise", "einsum", "norm".
std::string family_of(const OpCase& row);

// Append the cases of attention, and those of several blocks.
void add_attentions(std::vector<OpCase>& rows);
void add_attention_blocks(std::vector<OpCase>& rows, bool small);

std::vector<OpCase> primitive_cases();
std::vector<OpCase> composite_cases();
std::vector<OpCase> all_op_cases();
// At sizes of several blocks of attention and tiles of grouped products, for kernels of GPUs.
std::vector<OpCase> tiled_cases(bool small);

// Cases of products that fuse_products() fuses with their epilogues, for devices with such kernels.
struct FusedProducts {
  int64_t m = 5, n = 9, k = 7;
  std::string layouts = "nn";  // "nt": the second operand is stored transposed.
  bool fp8 = false;            // Uses products of 8-bit floats instead of einsum.
};

// Returns each epilogue once; the first is a sum with an array.
std::vector<OpCase> fused_product_cases(const FusedProducts& products = {});

// Returns cases that unpack the result, and the operands whose layout it has.
std::vector<OpCase> fused_packed_cases();

// "float[\"a=2\"]" from "a=2".
std::string floats_of(const std::string& axes);
// Replaces "float" in "float[\"a=2\"]" by a dtype.
std::string type_with(std::string_view type, std::string_view dtype);

// Checks compile and run a case on a device, like a training step, and compare the results with
// the reference interpreter's.

// Returns whether the case runs in several floating dtypes.
bool takes_floats(const OpCase& row);

// Returns "add of f32["row=5"], f32["row=5"]".
std::string case_name(const OpCase& row, DType dtype);

// Returns the case's graph: inputs x0, x1, … and outputs y0, y1, …
Graph traced_case(const OpCase& row, DType dtype, const Mesh& mesh);

struct CaseReport {
  double error = 0.0;  // The largest of any element, in units of its tolerance.
  // Empty if all are within tolerance; else the wrong kernel and an element of its result.
  std::string mismatch;
};

// Checks a case. `dtype` of the floating operands: f32 or bf16.
CaseReport check_case(const OpCase& row, DType dtype, Device& device);

struct CasesReport {
  int64_t cases = 0;
  double error = 0.0;                 // As of one case.
  std::vector<std::string> problems;  // "op NAME: " and a mismatch or the message of an Error.
};
// Each case in f32 and, if it takes floats, in bf16.
CasesReport check_cases(const std::vector<OpCase>& rows, Device& device);

}  // namespace tessera
