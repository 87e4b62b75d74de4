// SPDX-License-Identifier: Apache-2.0
// Tests linear_recurrence and its gradient on the virtual GPU: every op case, and sizes for lines
// of one thread and of several, of one block and of several, aligned and not.
#include "core/ops/linear_recurrence.h"

#include <fmt/core.h>

#include "core/check/op_cases.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/order.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

TEST_CASE("cases of linear_recurrence agree with the reference on the virtual GPU") {
  const TestDevices devices;
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kLinearRecurrenceOp && row.op != &kLinearRecurrenceGradOp) continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
  }
}
}  // namespace
}  // namespace tessera::cuda
