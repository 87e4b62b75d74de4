// SPDX-License-Identifier: Apache-2.0
// DTypePolicy and WeightInit.
#include "core/hparams/layer_params.h"

#include "core/hparams/convert.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

template <typename P>
P parse(std::string_view text) {
  P params;
  from_tree(TreeReader{Tree::typed(text, {}), "dtypes"}, params);
  return params;
}

TEST_CASE("A dtype policy is read from text") {
  REQUIRE(parse<DTypePolicy>("param=f32, compute=bf16") ==
          DTypePolicy{.param = DType::kF32, .compute = DType::kBF16});
  REQUIRE(parse<DTypePolicy>("") == DTypePolicy{});
  REQUIRE(error_of([] { parse<DTypePolicy>("comptue=bf16"); }) ==
          "no field 'dtypes.comptue' in DTypePolicy; did you mean 'dtypes.compute'?");
  REQUIRE(parse<DTypePolicy>("matmul=fp8") == DTypePolicy{.matmul = MatmulPrecision::kFp8});
  REQUIRE(error_of([] { parse<DTypePolicy>("matmul=fp9"); }) ==
          "dtypes.matmul: got 'fp9', expected one of compute, fp8; did you mean 'fp8'?");
}

TEST_CASE("A weight initialisation is read from text, and every kind has its own name") {
  REQUIRE(parse<WeightInit>("kind=gaussian, scale=0.02") == WeightInit{InitKind::kGaussian, 0.02});
  for (const auto& row : enum_names(InitKind{}))
    REQUIRE(parse<WeightInit>(fmt::format("kind={}", row.name)).kind == row.value);
}

TEST_CASE("Fixup scales Xavier's initialisation down with depth") {
  const WeightInit init = xavier_with_fixup(2.0, 16.0, 2.0);
  REQUIRE(init.kind == InitKind::kXavier);
  REQUIRE(init.scale == Approx(1.0).epsilon(1e-15));  // 2·16^(-1/4)
}

}  // namespace
}  // namespace tessera
