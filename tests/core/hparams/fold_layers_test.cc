// SPDX-License-Identifier: Apache-2.0
// Equal layers become one row of a listing.
#include "core/hparams/fold_layers.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/support/catch.h"

namespace tessera {
namespace {

using Strings = std::vector<std::string>;

// Input: one "path: kind" per row. Returns the folded paths with their number of rows.
Strings folded(const Strings& lines) {
  std::vector<PathRow> rows;
  for (const std::string& line : lines) {
    const size_t colon = line.find(": ");
    rows.push_back({line.substr(0, colon), line.substr(colon + 2)});
  }
  Strings result;
  std::vector<size_t> seen;
  for (const FoldedRow& row : fold_layers(rows)) {
    result.push_back(row.path + " x " + std::to_string(row.rows.size()));
    for (const size_t each : row.rows) REQUIRE(rows[each].kind == rows[row.rows[0]].kind);
    seen.insert(seen.end(), row.rows.begin(), row.rows.end());
  }
  // Each row is in exactly one folded row.
  std::sort(seen.begin(), seen.end());
  REQUIRE(seen.size() == rows.size());
  for (size_t i = 0; i < seen.size(); ++i) REQUIRE(seen[i] == i);
  return result;
}

// One line per layer "a[i]", whose only weight w has the given kind.
Strings layers(const Strings& kinds) {
  Strings lines;
  for (size_t i = 0; i < kinds.size(); ++i)
    lines.push_back("a[" + std::to_string(i) + "].w: " + kinds[i]);
  return lines;
}

TEST_CASE("equal layers become one row per weight, in the order of the weights") {
  REQUIRE(folded({"emb.w: A", "x_layers[0].q: B", "x_layers[0].k: B", "x_layers[1].q: B",
                  "x_layers[1].k: B", "ln.scale: C"}) ==
          Strings{"emb.w x 1", "x_layers[0..1].q x 2", "x_layers[0..1].k x 2", "ln.scale x 1"});
}

TEST_CASE("a single layer keeps its index") {
  REQUIRE(folded({"a[0].w: A"}) == Strings{"a[0].w x 1"});
  REQUIRE(folded({"a[7].w: A"}) == Strings{"a[7].w x 1"});
  REQUIRE(folded({}).empty());
}

TEST_CASE("layers stay separate if a weight's kind, name, count or order differs") {
  REQUIRE(folded(layers({"A", "B"})) == Strings{"a[0].w x 1", "a[1].w x 1"});
  REQUIRE(folded({"a[0].w: A", "a[1].v: A"}) == Strings{"a[0].w x 1", "a[1].v x 1"});
  REQUIRE(folded({"a[0].w: A", "a[1].w: A", "a[1].bias: B"}) ==
          Strings{"a[0].w x 1", "a[1].w x 1", "a[1].bias x 1"});
  REQUIRE(folded({"a[0].w: A", "a[0].v: A", "a[1].v: A", "a[1].w: A"}) ==
          Strings{"a[0].w x 1", "a[0].v x 1", "a[1].v x 1", "a[1].w x 1"});
  // The kinds of w and v are swapped.
  REQUIRE(folded({"a[0].w: A", "a[0].v: B", "a[1].w: B", "a[1].v: A"}).size() == 4);
}

TEST_CASE("equal layers are folded also if other layers lie between them") {
  REQUIRE(folded(layers({"A", "A", "B", "A", "A"})) == Strings{"a[0..1,3..4].w x 4", "a[2].w x 1"});
  REQUIRE(folded(layers({"A", "B", "A", "B"})) == Strings{"a[0,2].w x 2", "a[1,3].w x 2"});
  REQUIRE(folded(layers({"A", "A", "A", "B", "B", "B"})) ==
          Strings{"a[0..2].w x 3", "a[3..5].w x 3"});
}

TEST_CASE("layers that differ in few rows are together; these rows come last, by kind") {
  const auto layer = [](int i, const std::string& window, const std::string& q) {
    const std::string a = fmt::format("a[{}].", i);
    return Strings{a + "norm: N", a + "q: " + q, a + "window: " + window, a + "up: U"};
  };
  Strings lines;
  for (int i = 0; i < 4; ++i)
    for (const std::string& line : layer(i, i % 2 == 0 ? "1024" : "4096", "Q"))
      lines.push_back(line);
  REQUIRE(folded(lines) == Strings{"a[0..3].norm x 4", "a[0..3].q x 4", "a[0..3].up x 4",
                                   "a[0,2].window x 2", "a[1,3].window x 2"});
  // Half of the rows differ.
  Strings both = layer(0, "1024", "Q");
  for (const std::string& line : layer(1, "4096", "R")) both.push_back(line);
  REQUIRE(folded(both).size() == 8);
}

TEST_CASE("missing indices are not listed") {
  REQUIRE(folded({"a[1].w: A", "a[2].w: A", "a[3].w: A", "a[8].w: A"}) ==
          Strings{"a[1..3,8].w x 4"});
  REQUIRE(folded({"a[0].w: A", "a[999999999].w: A"}) == Strings{"a[0,999999999].w x 2"});
}

TEST_CASE("folded indices are sorted") {
  REQUIRE(folded({"a[10].w: A", "a[2].w: A", "a[9].w: A", "a[11].w: A"}) ==
          Strings{"a[2,9..11].w x 4"});
}

TEST_CASE("nested lists are folded") {
  REQUIRE(folded({"s[0].x[0].w: A", "s[0].x[1].w: A", "s[0].x[2].w: A", "s[1].x[0].w: A",
                  "s[1].x[1].w: A", "s[1].x[2].w: A"}) == Strings{"s[0..1].x[0..2].w x 6"});
  REQUIRE(folded({"s[0].x[0].w: A", "s[0].x[1].w: A", "s[1].x[0].w: A"}) ==
          Strings{"s[0].x[0..1].w x 2", "s[1].x[0].w x 1"});
  REQUIRE(folded({"m[0][0].w: A", "m[0][1].w: A", "m[1][0].w: A", "m[1][1].w: A"}) ==
          Strings{"m[0..1][0..1].w x 4"});
}

TEST_CASE("a list of weights is folded") {
  REQUIRE(folded({"w[0]: A", "w[1]: A", "w[2]: A"}) == Strings{"w[0..2] x 3"});
  REQUIRE(folded({"a: A", "a[0]: A", "a[1]: A"}) == Strings{"a x 1", "a[0..1] x 2"});
}

TEST_CASE("numbers and brackets inside a name are not indices") {
  REQUIRE(folded({"conv1.w: A", "conv2.w: A"}) == Strings{"conv1.w x 1", "conv2.w x 1"});
  REQUIRE(folded({"x_layers[].w: A", "x_layers[].v: A"}) ==
          Strings{"x_layers[].w x 1", "x_layers[].v x 1"});
  REQUIRE(folded({"a[x].w: A", "a[1.w: A", "a]0[.w: A"}) ==
          Strings{"a[x].w x 1", "a[1.w x 1", "a]0[.w x 1"});
  REQUIRE(folded({"a[00].w: A", "a[01].w: A", "a[-1].w: A"}) ==
          Strings{"a[00].w x 1", "a[01].w x 1", "a[-1].w x 1"});
  REQUIRE(folded({"a[99999999999999999999].w: A"}) == Strings{"a[99999999999999999999].w x 1"});
  REQUIRE(folded({"layer1[0].ffn2.w: A", "layer1[1].ffn2.w: A"}) ==
          Strings{"layer1[0..1].ffn2.w x 2"});
}

TEST_CASE("the number of a part is an index") {
  REQUIRE(folded({"lm.part0.x[0].w: A", "lm.part1.x[0].w: A", "lm.part2.x[0].v: A"}) ==
          Strings{"lm.part[0..1].x[0].w x 2", "lm.part2.x[0].v x 1"});
  REQUIRE(folded({"part0.w: A", "part1.w: A"}) == Strings{"part[0..1].w x 2"});
  REQUIRE(folded({"apart0.w: A", "apart1.w: A", "part.w: A", "part01.w: A"}).size() == 4);
  REQUIRE(without_indices("gradient of lm.part12.x_layers[3].ffn[x].w") ==
          "gradient of lm.part[].x_layers[].ffn[x].w");
  REQUIRE(without_indices("part[].x_layers[]") == "part[].x_layers[]");
}

TEST_CASE("rows with the same path keep their order, and layers must match in their number") {
  REQUIRE(folded({"a[0].w: gather", "a[0].w: scatter", "a[1].w: gather", "a[1].w: scatter"}) ==
          Strings{"a[0..1].w x 2", "a[0..1].w x 2"});
  REQUIRE(folded({"a[0].w: gather", "a[0].w: scatter", "a[1].w: gather"}).size() == 3);
}

TEST_CASE("lists of indices are abbreviated") {
  REQUIRE(index_text({4}) == "4");
  REQUIRE(index_text({0, 1}) == "0..1");
  REQUIRE(index_text({0, 1, 2, 3}) == "0..3");
  REQUIRE(index_text({3, 7, 11}) == "3,7,11");
  REQUIRE(index_text({0, 2, 4, 6, 8, 10}) == "0,2,..,10");
  REQUIRE(index_text({0, 1, 2, 4, 5, 6}) == "0..2,4..6");
  std::vector<int64_t> most, fourth;
  for (int64_t i = 0; i < 48; ++i) (i % 4 == 3 ? fourth : most).push_back(i);
  REQUIRE(index_text(fourth) == "3,7,..,47");
  REQUIRE(index_text(most) == "0..46 except 3,7,..,43");
}

}  // namespace
}  // namespace tessera
