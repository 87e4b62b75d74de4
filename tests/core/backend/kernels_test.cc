// SPDX-License-Identifier: Apache-2.0
// Every row of the op cases through passes, plan and CPU kernels, in f32 and bf16, against the
// reference interpreter in double precision. Each processor level runs it (docs/testing.md).
#include "core/backend/cpu/device.h"
#include "core/check/case_check.h"
#include "core/check/op_cases.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

void check_rows(DType dtype) {
  const auto device = make_cpu_device(2);
  for (const OpCase& row : all_op_cases()) {
    if (dtype != DType::kF32 && !takes_floats(row)) continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *device).mismatch == "");
  }
}

TEST_CASE("every op's CPU kernel in f32 agrees with the reference") { check_rows(DType::kF32); }

TEST_CASE("every op's CPU kernel in bf16 agrees with the reference") { check_rows(DType::kBF16); }

}  // namespace
}  // namespace tessera
