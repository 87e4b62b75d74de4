// SPDX-License-Identifier: Apache-2.0
// DTypePolicy and WeightInit.

#include "core/hparams/dtype_policy.h"
#include "core/hparams/weight_init.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("a dtype policy is read from text") {
  REQUIRE(parse_dtype_policy("param=f32, compute=bf16") ==
          DTypePolicy{.param = DType::kF32, .compute = DType::kBF16});
  REQUIRE(parse_dtype_policy("") == DTypePolicy{});
  REQUIRE(sample::error_of([] { parse_dtype_policy("comptue=bf16"); }) ==
          "no field 'dtypes.comptue' in DTypePolicy; did you mean 'dtypes.compute'?");
}

TEST_CASE("a weight init is read from text, and every kind has a name of its own") {
  REQUIRE(parse_weight_init("kind=gaussian, scale=0.02") == WeightInit{InitKind::kGaussian, 0.02});
  for (const auto& row : enum_names(InitKind{}))
    REQUIRE(parse_weight_init(fmt::format("kind={}", row.name)).kind == row.value);
}

TEST_CASE("fixup shrinks Xavier's scale with depth") {
  const WeightInit init = xavier_with_fixup(2.0, 16.0, 2.0);
  REQUIRE(init.kind == InitKind::kXavier);
  REQUIRE(init.scale == Approx(1.0).epsilon(1e-15));  // 2·16^(-1/4)
}

}  // namespace
}  // namespace tessera
