// SPDX-License-Identifier: Apache-2.0
// Tracing of loops: captures, operands of the node, errors.
#include "core/ops/repeat.h"

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

const Node& loop_of(Trial& trial) {
  for (const Node& node : trial.graph().nodes())
    if (node.op->name == "repeat") return node;
  fail("no loop was traced");
}

TEST_CASE("A loop captures each tensor of the outer trace once, slices before constants") {
  Trial trial({}, {"f32[\"embed=4\"]", "f32[\"layers=3 embed=4\"]", "f32[\"embed=4\"]",
                   "f32[\"layers=3 embed=4\"]"});
  const Tensors& in = trial.inputs();
  const RepeatResult result =
      repeat("layers", 3, {in[0]}, {in[1]}, [&](Tensor index, Tensors carries, Tensors slices) {
        REQUIRE(index.type() == make_type(DType::kI32, {}));
        REQUIRE(slices[0].type().text_sized() == "f32[\"embed=4\"]");
        const Tensor sum = carries[0] * slices[0] + in[2] + in[2] + loop_slice(in[3]);
        return RepeatBody{{sum}, {sum * 2.0}};
      });
  REQUIRE(result.carries[0].type().text_sized() == "f32[\"embed=4\"]");
  REQUIRE(result.stacked[0].type().text_sized() == "f32[\"layers=3 embed=4\"]");

  const Node& node = loop_of(trial);
  const std::vector<ValueId> operands = {in[0].id(), in[1].id(), in[3].id(), in[2].id()};
  REQUIRE(node.inputs == operands);
  REQUIRE(node.attributes.get(key::kCarries) == 1);
  REQUIRE(node.attributes.get(key::kStacked) == 2);
  REQUIRE(node.attributes.get(key::kConstants) == 1);
  REQUIRE(node.bodies[0]->inputs().size() == 5);
  REQUIRE(node.bodies[0]->outputs().size() == 2);
}

TEST_CASE("Nested loops: the inner loop reads carries of the outer loop and tensors outside both") {
  Trial trial({}, {"f32[\"embed=4\"]", "f32[\"layers=3 embed=4\"]"});
  const Tensors& in = trial.inputs();
  const RepeatResult result =
      repeat("micro", 2, {in[0]}, {}, [&](Tensor, Tensors outer, Tensors) -> RepeatBody {
        return {repeat("layers", 3, {outer[0]}, {},
                       [&](Tensor, Tensors inner, Tensors) -> RepeatBody {
                         return {{inner[0] + outer[0] + loop_slice(in[1]) + in[0]}, {}};
                       })
                    .carries,
                {}};
      });
  REQUIRE(result.carries[0].type() == in[0].type());
  const Node& outer = loop_of(trial);
  REQUIRE(outer.inputs.size() == 3);  // The carry, the stack (whole) and x as a constant.
  const Node& inner = outer.bodies[0]->nodes().back();
  REQUIRE(inner.op->name == "repeat");
  REQUIRE(inner.attributes.get(key::kStacked) == 1);
  REQUIRE(inner.attributes.get(key::kConstants) == 2);
}

TEST_CASE("Values that a body stacks leave the loop after its own slices, from any depth") {
  Trial trial({}, {"f32[\"embed=4\"]"});
  const Tensor x = trial.inputs()[0];
  std::vector<std::string> types;
  const auto seen = [&](const Tensors& stacked) {
    REQUIRE(&traced_graph() == stacked[0].graph());
    for (const Tensor& each : stacked) types.push_back(each.type().text_sized());
  };
  const RepeatResult result =
      repeat("micro", 2, {}, {}, [&](Tensor, Tensors, Tensors) -> RepeatBody {
        repeat("layers", 3, {}, {}, [&](Tensor index, Tensors, Tensors) -> RepeatBody {
          // The inner stack is handed out in the outer body, which stacks it again.
          innermost_body()->stack({x * 2.0}, [&](const Tensors& stacked) {
            seen(stacked);
            innermost_body()->stack(stacked, seen);
          });
          return {{}, {index}};
        });
        innermost_body()->stack({x, x + x}, seen);
        return {{}, {neg(x)}};
      });
  REQUIRE(types ==
          std::vector<std::string>{"f32[\"layers=3 embed=4\"]", "f32[\"micro=2 layers=3 embed=4\"]",
                                   "f32[\"micro=2 embed=4\"]", "f32[\"micro=2 embed=4\"]"});
  REQUIRE(result.stacked.size() == 1);
  REQUIRE(loop_of(trial).outputs.size() == 4);
}

TEST_CASE("A loop refuses carries whose type changes, wrong stacks and zero iterations") {
  Trial trial({}, {"f32[\"embed=4\"]", "f32[\"layers=2 embed=4\"]"});
  const Tensors& in = trial.inputs();
  const auto looped = [&](int64_t count, const Tensors& stacked, auto body) {
    return error_of([&] {
      repeat("layers", count, {in[0]}, stacked,
             [&](Tensor, Tensors carries, Tensors) -> RepeatBody { return body(carries[0]); });
    });
  };
  using Catch::Contains;
  REQUIRE_THAT(looped(2, {},
                      [](Tensor x) {
                        return RepeatBody{{cast(x, DType::kBF16)}, {}};
                      }),
               Contains("repeat: x is f32[\"embed=4\"] before an iteration and "
                        "bf16[\"embed=4\"] after it; the body must return the type it takes"));
  REQUIRE_THAT(
      looped(3, {in[1]},
             [](Tensor x) {
               return RepeatBody{{x}, {}};
             }),
      Contains("repeat: y is f32[\"layers=2 embed=4\"], expected a leading axis layers=3"));
  REQUIRE_THAT(looped(2, {}, [](Tensor) { return RepeatBody{}; }),
               Contains("repeat: the body takes 1 carries and returns 0"));
  REQUIRE_THAT(looped(0, {},
                      [](Tensor x) {
                        return RepeatBody{{x}, {}};
                      }),
               Contains("repeat: count is 0, expected at least 1"));
}

TEST_CASE(
    "Random numbers depend on the index of a loop over layers and on the example in a loop over "
    "microbatches") {
  Trial trial({}, {"f32[\"batch=2 embed=4\"]", "i32[\"\"]", "i32[\"\"]"});
  const Tensors& in = trial.inputs();
  const auto drop_in_layers = [&](const Tensor& x) {
    return repeat("layers", 3, {x}, {},
                  [&](Tensor, Tensors carries, Tensors) -> RepeatBody {
                    const PathScope path("x[].drop");
                    return {{dropout(carries[0], 0.5, in[1])}, {}};
                  })
        .carries[0];
  };
  drop_in_layers(in[0]);
  const Node layers = trial.graph().nodes().back().bodies[0]->nodes().back();
  REQUIRE(layers.attributes.get(key::kLoop) == 1);
  REQUIRE(layers.attributes.get(key::kPart) == 0);
  REQUIRE(layers.attributes.get(key::kStream) == "x[].drop");
  REQUIRE(layers.inputs.size() == 3);

  repeat("micro", 2, {in[0]}, {}, [&](Tensor, Tensors carries, Tensors) -> RepeatBody {
    const ExampleScope examples(imported(in[2]));
    const PathScope path("drop");
    return {{drop_in_layers(dropout(carries[0], 0.5, in[1]))}, {}};
  });
  const Graph& body = *trial.graph().nodes().back().bodies[0];
  const Node& outer = body.nodes().front();
  REQUIRE(outer.op->name == "dropout");
  REQUIRE(outer.attributes.get(key::kLoop) == 0);
  REQUIRE(outer.attributes.get(key::kPart) == 1);
  const Node& inner = body.nodes().back().bodies[0]->nodes().back();
  REQUIRE(inner.attributes.get(key::kLoop) == 1);
  REQUIRE(inner.attributes.get(key::kPart) == 1);
  REQUIRE(inner.inputs.size() == 4);
}

}  // namespace
}  // namespace tessera
