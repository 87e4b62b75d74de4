// SPDX-License-Identifier: Apache-2.0
// Compiles and runs one op case on a device, like a training step, and compares the results with
// the reference interpreter's.
#pragma once

#include <string>

#include "core/backend/backend.h"
#include "core/base/dtype.h"
#include "core/check/op_cases.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Whether the case runs in several floating dtypes.
bool takes_floats(const OpCase& row);

// "add of f32["row=5"], f32["row=5"]".
std::string case_name(const OpCase& row, DType dtype);

// The case's graph: inputs x0, x1, … and outputs y0, y1, …
Graph traced_case(const OpCase& row, DType dtype, const Mesh& mesh);

struct CaseReport {
  double error = 0.0;  // The largest of any element, in units of its tolerance.
  // Empty if all are within tolerance; else the wrong kernel and an element of its result.
  std::string mismatch;
};

// `dtype` of the floating operands: f32 or bf16.
CaseReport check_case(const OpCase& row, DType dtype, Device& device);

}  // namespace tessera
