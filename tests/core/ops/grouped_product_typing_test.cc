// SPDX-License-Identifier: Apache-2.0
// The type rules of grouped products: results and error messages, on a mesh of eight devices and,
// with the same messages, on a mesh of one.
#include <string>
#include <vector>

#include "core/ops/grouped_product.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"
#include "tests/support/typing_rows.h"

namespace tessera {
namespace {

using T = const std::vector<Tensor>&;

TEST_CASE("grouped_product: typed as the one-hot product") {
  const std::string x = "f32[\"b/data=8 k=2 e=16\"]", ids = "i32[\"b/data=8 k=2\"]";
  const std::string w = "f32[\"v=4 e=16 m=32\"]";
  run("grouped_product over e",
      [](T t) { return grouped_product(t[0], t[1], t[2], "v", over("e")); },
      {{{x, w, ids}, "f32[\"b/data k m\"]"},
       {{"f32[\"b/data=8 e=16\"]", w, ids}, "f32[\"b/data k m\"]"},
       {{x, "f32[\"v=4 m/mdl=32 e=16\"]", ids}, "f32[\"b/data k m/mdl\"]"},
       {{x, "f32[\"v/mdl=4 e=16 m=32\"]", ids}, "f32[\"b/data k m\" + sum(mdl)]"},
       {{"f32[\"b/data=8 e/mdl=16\"]", "f32[\"v=4 e/mdl=16 m=32\"]", ids},
        "f32[\"b/data k m\" + sum(mdl)]"},
       {{"f32[\"b=8 e/data=16\"]", "f32[\"v/mdl=4 e/data=16 m=32\"]", "i32[\"b=8\"]"},
        "f32[\"b m\" + sum(data, mdl)]"},
       {{"f32[\"b/data=8 e=16\" + sum(mdl)]", w, ids}, "f32[\"b/data k m\" + sum(mdl)]"},
       {{x, "f32[\"v/data=4 e=16 m=32\"]", ids}, "grouped_product: y v/data, z b/data; place(y)"},
       {{"f32[\"b/data=8 e=16\" + sum(mdl)]", "f32[\"v/mdl=4 e=16 m=32\"]", ids},
        "grouped_product: x is partial over mdl, which splits v of y; place(x)"},
       {{x, "f32[\"v=4 e/mdl=16 m=32\"]", ids},
        "grouped_product: y has e/mdl, x has e; reshard x to e/mdl (free slice) or gather y"},
       {{"f32[\"b=8 k=2 e=16\"]", w, ids},
        "grouped_product: x has b, z has b/data; reshard x to b/data (free slice) or gather z"},
       {{x, "f32[\"v=4 e=16 m/data=32\"]", ids},
        "grouped_product: result uses data for both b and m; place(y)"},
       {{x, "f32[\"e=16 v=4 m=32\"]", ids},
        "grouped_product: y is f32[\"e v m\"], expected the axes [v e] and one more, v first; "
        "transpose it"},
       {{x, "f32[\"v=4 e=16\"]", ids},
        "grouped_product: y is f32[\"v e\"], expected the axes [v e] and one more, v first; "
        "transpose it"},
       {{"f32[\"b/data=8 e=16 k=2\"]", w, ids},
        "grouped_product: x is f32[\"b/data e k\"], expected axes among [b k] of z in this order, "
        "then one more; transpose it or merge_axes"},
       {{"f32[\"k=2 b/data=8 e=16\"]", w, ids},
        "grouped_product: x is f32[\"k b/data e\"], expected axes among [b k] of z in this order, "
        "then one more; transpose it or merge_axes"},
       {{"f32[\"b/data=8 s=3 e=16\"]", w, ids},
        "grouped_product: x is f32[\"b/data s e\"], expected axes among [b k] of z in this order, "
        "then one more; transpose it or merge_axes"},
       {{x, "f32[\"v=4 e=16 k=2\"]", ids},
        "grouped_product: y has an axis k already: it is f32[\"v e k\"]; rename one"},
       {{"bf16[\"b/data=8 e=16\"]", w, ids}, "grouped_product: y is f32, x is bf16; cast one"},
       {{x, w, "f32[\"b/data=8 k=2\"]"}, "grouped_product: z is f32, expected i32"},
       {{x, w, "i32[\"b/data=8 k=2\" + sum(mdl)]"},
        "grouped_product: the index tensor z is partial over mdl; place(z)"}});
}

TEST_CASE("grouped_outer_product: a sum over the axes of ids") {
  const std::string x = "f32[\"b/data=8 e=16\"]", y = "f32[\"b/data=8 k=2 m=32\"]";
  const std::string ids = "i32[\"b/data=8 k=2\"]";
  const auto product = [](const std::string& split) {
    return [split](T t) {
      const std::vector<std::string> mesh_axes =
          split.empty() ? std::vector<std::string>{} : std::vector<std::string>{split};
      return grouped_outer_product(t[0], t[1], t[2], {"v", 4, mesh_axes});
    };
  };
  run("grouped_outer_product", product("mdl"),
      {{{x, y, ids}, "f32[\"v/mdl e m\" + sum(data)]"},
       {{"f32[\"b=8 e=16\"]", "f32[\"b=8 k=2 m/data=32\"]", "i32[\"b=8 k=2\"]"},
        "f32[\"v/mdl e m/data\"]"},
       {{x, "f32[\"b/data=8 k=2 m/mdl=32\"]", ids},
        "grouped_outer_product: result uses mdl for both v and m; place(y)"},
       {{x, "f32[\"b/data=8 k=2 e=32\"]", ids},
        "grouped_outer_product: y has an axis e already: it is f32[\"b/data k e\"]; rename one"},
       {{x, "f32[\"b/data=8 k=2 v=32\"]", ids},
        "grouped_outer_product: y has an axis v already: it is f32[\"b/data k v\"]; rename one"},
       {{x, "f32[\"b/data=8 k=2\"]", ids},
        "grouped_outer_product: y is f32[\"b/data k\"], expected axes among [b k] of z in this "
        "order, then one more; transpose it or merge_axes"}});
  run("grouped_outer_product split as ids", product("data"),
      {{{x, y, ids}, "grouped_outer_product: x v/data, z b/data; place(x)"}});
}

}  // namespace
}  // namespace tessera
