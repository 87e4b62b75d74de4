// SPDX-License-Identifier: Apache-2.0
// Types as text, and what is wrong with a type on a mesh.
#include "core/graph/type.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Matchers::Equals;

TEST_CASE("A type reads and prints in one notation") {
  const std::string text = "bf16[\"batch/replica/data=32 seq=128 embed/mdl=64\"]";
  const Type type = parse_type(text);
  REQUIRE(type.dtype == DType::kBF16);
  REQUIRE(type.axis("batch").size == 32);
  REQUIRE(type.axis("batch").split == std::vector<std::string>{"replica", "data"});
  REQUIRE(type.text_sized() == text);
  REQUIRE(type.text() == "bf16[\"batch/replica/data seq embed/mdl\"]");
  REQUIRE(type.layout() == "batch/replica/data seq embed/mdl");

  const Type partial = parse_type("f32[\"batch=4\" + sum(data, mdl)]");
  REQUIRE(partial.text() == "f32[\"batch\" + sum(data, mdl)]");
  REQUIRE(partial.partial.kind == PartialKind::kSum);
  REQUIRE(parse_type("f32[\"\"]").rank() == 0);
  REQUIRE(parse_type("f32[\"\" + max(mdl)]").partial.kind == PartialKind::kMax);
}

}  // namespace
}  // namespace tessera
