// SPDX-License-Identifier: Apache-2.0
// The type rules of leaves.
#include "core/ops/leaves.h"
#include "tests/support/typing_rows.h"

namespace tessera {
namespace {

using T = const std::vector<Tensor>&;

TEST_CASE("each device has one leaf") {
  const auto own = [](const std::string& type) {
    return outcome(Mesh::standard({1, 2, 4}), {type}, [](T t) { return own_leaf(t[0]); });
  };
  REQUIRE(own("i32[\"leaf/data=2 b=4\"]") == "i32[\"b\"]");
  REQUIRE(own("f32[\"s/mdl=8 leaf/data=2 b=4\"]") == "f32[\"s/mdl b\"]");
  REQUIRE(own("f32[\"b=4\"]") == "own_leaf: x has no axis 'leaf': it is f32[\"b\"]");
  REQUIRE(own("f32[\"leaf/data=8 b=4\"]") ==
          "own_leaf: x has 8 leaves for 2 devices; expected one for each");
}

TEST_CASE("values of all leaves are split over the devices that have them") {
  run("all_leaves", [](T t) { return all_leaves(t[0], {"data"}); },
      {{{"f32[\"e=8 m/mdl=8\"]"}, "f32[\"leaf/data e m/mdl\"]"},
       {{"f32[\"layers=3 e=8\"]"}, "f32[\"layers leaf/data e\"]"},
       {{"f32[\"\"]"}, "f32[\"leaf/data\"]"}});
}

TEST_CASE("leaves are added to a sum of their axes") {
  run("add_leaves", [](T t) { return add_leaves(t[0], t[1]); },
      {{{"f32[\"e/data=8\"]", "f32[\"leaf=2 e/data=8\"]"}, "f32[\"e/data\"]"},
       {{"f32[\"e=8\"]", "f32[\"leaf/data=2 e=8\"]"},
        "add_leaves: leaf of y is split over data; reshard it to unsplit leaf"}});
}

}  // namespace
}  // namespace tessera
