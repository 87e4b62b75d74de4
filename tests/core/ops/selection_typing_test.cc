// SPDX-License-Identifier: Apache-2.0
// The typing table of ops that select elements by integers and that order them.
#include <string>
#include <vector>

#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/order.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"
#include "tests/support/typing_rows.h"

namespace tessera {
namespace {

using T = const std::vector<Tensor>&;

// The types of typing_test.cc.
const std::string kWhole = "f32[\"b=8 e=16\"]";
const std::string kSplit = "f32[\"b=8 e/mdl=16\"]";
const std::string kSum = "f32[\"b=8 e=16\" + sum(mdl)]";
const std::string kMax = "f32[\"b=8 e=16\" + max(mdl)]";

TEST_CASE("gather: typed as the one-hot product") {
  run("gather", [](T t) { return gather(t[0], t[1], "v"); },
      {{{"f32[\"v=16 e=16\"]", "i32[\"b/data=8 s=4\"]"}, "f32[\"b/data s e\"]"},
       {{"f32[\"v/mdl=16 e=16\"]", "i32[\"b/data=8 s=4\"]"}, "f32[\"b/data s e\" + sum(mdl)]"},
       {{"f32[\"v=16 e/mdl=16\"]", "i32[\"b/data=8 s=4\"]"}, "f32[\"b/data s e/mdl\"]"},
       {{"f32[\"v=16 e=16\" + sum(mdl)]", "i32[\"b/data=8\"]"}, "f32[\"b/data e\" + sum(mdl)]"},
       {{"f32[\"v/data=16 e=16\"]", "i32[\"b/data=8 s=4\"]"},
        "gather: x v/data, y b/data; place(x)"},
       {{"f32[\"v=16 e/data=16\"]", "i32[\"b/data=8\"]"},
        "gather: result uses data for both b and e; place(x)"},
       {{"f32[\"v=16 e=16\" + sum(data)]", "i32[\"b/data=8\"]"},
        "gather: x is partial over data, which splits b of y; place(x)"},
       {{"f32[\"v=16 e=16\"]", "i32[\"b=8\" + sum(mdl)]"},
        "gather: the index tensor y is partial over mdl; place(y)"},
       {{"f32[\"v=16 e=16\"]", "f32[\"b=8\"]"}, "gather: y is f32, expected i32"},
       {{"f32[\"e=16 v=16\"]", "i32[\"b=8\"]"},
        "gather: v must come first in x, which is f32[\"e v\"]; transpose it"},
       {{"f32[\"v=16 e=16\"]", "i32[\"e=16\"]"},
        "gather: x and y both have axis e, which is not a batch axis (first in both); rename one"},
       {{"f32[\"b/data=8 v=16 e/mdl=16\"]", "i32[\"b/data=8 s=4 t=2\"]"},
        "f32[\"b/data s t e/mdl\"]"},
       {{"f32[\"b/data=8 v/mdl=16 e=16\"]", "i32[\"b/data=8 s=4\"]"},
        "f32[\"b/data s e\" + sum(mdl)]"},
       {{"f32[\"b/data=8 v=16\"]", "i32[\"b=8 s=4\"]"},
        "gather: x has b/data, y has b; reshard y to b/data (free slice) or gather x"},
       {{"f32[\"b=8 e=16 v=16\"]", "i32[\"b=8 s=4\"]"},
        "gather: v must follow the batch axes in x, which is f32[\"b e v\"]; transpose it"},
       {{"f32[\"u=16 e=16\"]", "i32[\"b=8\"]"}, "gather: x has no axis 'v': it is f32[\"u e\"]"}});
}

TEST_CASE("scatter_add: the transposed one-hot product") {
  run("scatter_add",
      [](T t) {
        return scatter_add(t[0], t[1], {"v", 16, {"mdl"}});
      },
      {{{"f32[\"b=8 e=16\"]", "i32[\"b=8\"]"}, "f32[\"v/mdl e\"]"},
       {{"f32[\"b/data=8 e=16\"]", "i32[\"b/data=8\"]"}, "f32[\"v/mdl e\" + sum(data)]"},
       {{"f32[\"b/mdl=8 e=16\"]", "i32[\"b/mdl=8\"]"}, "scatter_add: x v/mdl, y b/mdl; place(x)"},
       {{"f32[\"b=8 e/mdl=16\"]", "i32[\"b=8\"]"},
        "scatter_add: result uses mdl for both v and e; place(x)"},
       {{"f32[\"b=8 e=16\" + sum(data)]", "i32[\"b=8\"]"}, "f32[\"v/mdl e\" + sum(data)]"},
       {{"f32[\"b=8 e=16\" + sum(mdl)]", "i32[\"b=8\"]"},
        "scatter_add: result is partial over mdl, which also splits v; reshard an operand"},
       {{"f32[\"b/data=8 e=16\"]", "i32[\"b=8\"]"},
        "scatter_add: x has b/data, y has b; reshard y to b/data (free slice) or gather x"},
       {{"f32[\"e=16 b=8\"]", "i32[\"b=8\"]"},
        "scatter_add: x is f32[\"e b\"], expected to begin with the axes [b] of y"}});
  run("scatter_add by example",
      [](T t) {
        return scatter_add(t[0], t[1], {"v", 16, {}}, 1);
      },
      {{{"f32[\"b/data=8 s=4 e=16\"]", "i32[\"b/data=8 s=4\"]"}, "f32[\"b/data v e\"]"},
       {{"f32[\"b=8 s/mdl=4 e=16\"]", "i32[\"b=8 s/mdl=4\"]"}, "f32[\"b v e\" + sum(mdl)]"}});
}

TEST_CASE("pick: one element of an axis, by id") {
  run("pick", [](T t) { return pick(t[0], t[1], "v"); },
      {{{"f32[\"b/data=8 v=16\"]", "i32[\"b/data=8\"]"}, "f32[\"b/data\"]"},
       {{"f32[\"b/data=8 v/mdl=16\"]", "i32[\"b/data=8\"]"}, "f32[\"b/data\" + sum(mdl)]"},
       {{"f32[\"b=8 v=16\" + sum(mdl)]", "i32[\"b=8\"]"}, "f32[\"b\" + sum(mdl)]"},
       {{"f32[\"b=8 v/mdl=16\"]", "i32[\"b/mdl=8\"]"},
        "pick: x has b, y has b/mdl; reshard x to b/mdl (free slice) or gather y"},
       {{"f32[\"b=8 v=16\"]", "i32[\"s=8\"]"},
        "pick: x is f32[\"b v\"] and y is i32[\"s\"]; expected the same axes in the same order, "
        "without v or with another axis in its place"}});
}

TEST_CASE("pick: several elements of an axis, by ids along another axis") {
  run("pick", [](T t) { return pick(t[0], t[1], "v"); },
      {{{"f32[\"b/data=8 v=16 e=4\"]", "i32[\"b/data=8 k=2 e=4\"]"}, "f32[\"b/data k e\"]"},
       {{"f32[\"b=8 v=16\"]", "i32[\"b=8 v=4\"]"}, "f32[\"b v\"]"},
       {{"f32[\"b=8 v=16\"]", "i32[\"b=8 k/mdl=4\"]"}, "f32[\"b k/mdl\"]"},
       {{"f32[\"b=8 v/mdl=16\"]", "i32[\"b=8 k=2\"]"}, "f32[\"b k\" + sum(mdl)]"},
       {{"f32[\"b=8 v=16\" + sum(mdl)]", "i32[\"b=8 k=2\"]"}, "f32[\"b k\" + sum(mdl)]"},
       {{"f32[\"b=8 v/mdl=16\"]", "i32[\"b=8 k/mdl=4\"]"}, "pick: x v/mdl, y k/mdl; place(x)"},
       {{"f32[\"b=8 v=16\" + sum(mdl)]", "i32[\"b=8 k/mdl=4\"]"},
        "pick: x is partial over mdl, which splits k of y; place(x)"},
       {{"f32[\"b/data=8 v=16\"]", "i32[\"b=8 k=2\"]"},
        "pick: x has b/data, y has b; reshard y to b/data (free slice) or gather x"},
       {{"f32[\"b=8 v=16\"]", "i32[\"k=2 b=8\"]"},
        "pick: x is f32[\"b v\"] and y is i32[\"k b\"]; expected the same axes in the same order, "
        "without v or with another axis in its place"}});
}

TEST_CASE("scatter_along: the transpose of pick by several ids") {
  run("scatter_along",
      [](T t) {
        return scatter_along(t[0], t[1], "k", {"v", 16, {"mdl"}});
      },
      {{{"f32[\"b/data=8 k=2\"]", "i32[\"b/data=8 k=2\"]"}, "f32[\"b/data v/mdl\"]"},
       {{"f32[\"b=8 k/data=4\"]", "i32[\"b=8 k/data=4\"]"}, "f32[\"b v/mdl\" + sum(data)]"},
       {{"f32[\"b=8 k=2\" + sum(data)]", "i32[\"b=8 k=2\"]"}, "f32[\"b v/mdl\" + sum(data)]"},
       {{"f32[\"b=8 k/mdl=4\"]", "i32[\"b=8 k/mdl=4\"]"},
        "scatter_along: x v/mdl, y k/mdl; place(x)"},
       {{"f32[\"b/mdl=8 k=2\"]", "i32[\"b/mdl=8 k=2\"]"},
        "scatter_along: x v/mdl, y b/mdl; place(x)"},
       {{"f32[\"b=8 v=2\"]", "i32[\"b=8 v=2\"]"},
        "scatter_along: x has no axis 'k': it is f32[\"b v\"]"},
       {{"f32[\"v=8 k=2\"]", "i32[\"v=8 k=2\"]"},
        "scatter_along: x has an axis v already: it is f32[\"v k\"]; rename one"},
       {{"f32[\"b=8 k=2\"]", "i32[\"b=8\"]"},
        "scatter_along: x is f32[\"b k\"] and y is i32[\"b\"]; expected the same axes in the same "
        "order"},
       {{"i32[\"b=8 k=2\"]", "i32[\"b=8 k=2\"]"},
        "scatter_along: x is i32, expected a floating dtype; cast it"}});
}

TEST_CASE("Orders: along an unsplit axis, of whole values") {
  run("argsort", [](T t) { return argsort(t[0], "e"); },
      {{{"f32[\"b/data=8 e=16\"]"}, "i32[\"b/data e\"]"},
       {{"i32[\"e=16 b/data/mdl=8\"]"}, "i32[\"e b/data/mdl\"]"},
       {{kSplit}, "argsort: e of x is split over mdl; reshard it to unsplit e"},
       {{kSum}, "argsort is not linear; x is partial over mdl; place(x)"},
       {{"bool[\"e=16\"]"}, "argsort: x is bool, expected a floating dtype or i32; cast it"},
       {{"f32[\"b=8\"]"}, "argsort: x has no axis 'e': it is f32[\"b\"]"}});
  run("sort", [](T t) { return sort(t[0], "e", SortOrder::kDescending); },
      {{{"bf16[\"b/data=8 e=16\"]"}, "bf16[\"b/data e\"]"},
       {{kSum}, "argsort is not linear; x is partial over mdl; place(x)"}});
  run("top_k",
      [](T t) {
        return top_k(t[0], "e", {"k", 2, {}}).values;
      },
      {{{"f32[\"b/data=8 e=16 n=4\"]"}, "f32[\"b/data k n\"]"},
       {{"i32[\"b/data=8 e=16\"]"}, "i32[\"b/data k\"]"},
       {{kSplit}, "top_k: e of x is split over mdl; reshard it to unsplit e"},
       {{kSum}, "top_k is not linear; x is partial over mdl; place(x)"},
       {{"f32[\"b=8 e=1\"]"}, "top_k: k=2 of e=1 of x; expected 1 to 1"},
       {{"f32[\"k=8 e=16\"]"}, "top_k: x has an axis k already: it is f32[\"k e\"]; rename one"}});
  run("top_k indices",
      [](T t) {
        return top_k(t[0], "e", {"e", 3, {}}).indices;
      },
      {{{"f32[\"b/data=8 e=16\"]"}, "i32[\"b/data e\"]"}});
  run("top_k of nothing",
      [](T t) {
        return top_k(t[0], "e", {"k", 0, {}}).values;
      },
      {{{kWhole}, "top_k: k=0 of e=16 of x; expected 1 to 16"}});
  run("top_k split",
      [](T t) {
        return top_k(t[0], "e", {"k", 2, {"mdl"}}).values;
      },
      {{{kWhole}, "top_k: the new axis k/mdl is split; expected k=2, unsplit"}});
}

TEST_CASE("cumulative_sum: linear, along an unsplit axis") {
  run("cumulative_sum", [](T t) { return cumulative_sum(t[0], "e", {.exclusive = true}); },
      {{{"f32[\"b/data=8 e=16\"]"}, "f32[\"b/data e\"]"},
       {{"i32[\"e=16\"]"}, "i32[\"e\"]"},
       {{kSum}, "f32[\"b e\" + sum(mdl)]"},
       {{kMax}, "cumulative_sum: x is a partial max over mdl; reshard it to replicated"},
       {{kSplit}, "cumulative_sum: e of x is split over mdl; reshard it to unsplit e"},
       {{"bool[\"e=16\"]"},
        "cumulative_sum: x is bool, expected a floating dtype or i32; cast it"}});
}

TEST_CASE("unbind: slices without the axis") {
  run("unbind", [](T t) { return unbind(t[0], "e").at(1); },
      {{{"f32[\"b/data=8 e=2 n/mdl=4\"]"}, "f32[\"b/data n/mdl\"]"},
       {{"f32[\"e=2 b/data=8\" + sum(mdl)]"}, "f32[\"b/data\" + sum(mdl)]"},
       {{kSplit}, "slice: e of x is split over mdl; reshard it to unsplit e"},
       {{"f32[\"b=8 n=2\"]"}, "slice: x has no axis 'e': it is f32[\"b n\"]"},
       {{"f32[\"e=16\"]"}, "unbind: f32[\"e\"] has fewer than two axes; slice it"}});
}

}  // namespace
}  // namespace tessera
