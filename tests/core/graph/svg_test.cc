// SPDX-License-Identifier: Apache-2.0
// Drawings: geometry that holds for any graph, and what a drawing shows.
#include "core/graph/svg.h"

#include <random>

#include "core/graph/layered.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

bool inside(const Box& inner, const Box& outer) {
  constexpr double kSlack = 1e-6;
  return inner.corner.x >= outer.corner.x - kSlack && inner.corner.y >= outer.corner.y - kSlack &&
         inner.corner.x + inner.width <= outer.corner.x + outer.width + kSlack &&
         inner.corner.y + inner.height <= outer.corner.y + outer.height + kSlack;
}

bool apart(const Box& a, const Box& b) {
  return a.corner.x + a.width <= b.corner.x || b.corner.x + b.width <= a.corner.x ||
         a.corner.y + a.height <= b.corner.y || b.corner.y + b.height <= a.corner.y;
}

// A random tree of boxes with random wires from earlier to later leaves.
void make_random(unsigned seed, std::vector<Box>& boxes, std::vector<Wire>& wires) {
  std::mt19937 random(seed);
  boxes.push_back({});
  std::vector<int> layers = {0}, leaves;
  for (int i = 0; i < 40; ++i) {
    const int parent = layers[random() % layers.size()];
    const int box = static_cast<int>(boxes.size());
    boxes.push_back({.parent = parent, .width = 20.0 + random() % 80, .height = 20.0});
    if (random() % 4 == 0) {
      layers.push_back(box);
      boxes[static_cast<size_t>(box)].header = 10.0;
    } else {
      for (int wire = 0; wire < 2 && !leaves.empty(); ++wire) {
        wires.push_back({leaves[random() % leaves.size()], box, {}});
      }
      leaves.push_back(box);
    }
  }
}

TEST_CASE("Boxes lie in their parents and apart from each other, and wires join them") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::vector<Box> boxes;
    std::vector<Wire> wires;
    make_random(seed, boxes, wires);
    arrange(boxes, wires);
    for (size_t i = 1; i < boxes.size(); ++i) {
      REQUIRE(inside(boxes[i], boxes[static_cast<size_t>(boxes[i].parent)]));
      for (size_t j = 1; j < i; ++j) {
        if (boxes[i].parent == boxes[j].parent) REQUIRE(apart(boxes[i], boxes[j]));
      }
    }
    for (const Wire& wire : wires) {
      const Box& from = boxes[static_cast<size_t>(wire.from)];
      const Box& to = boxes[static_cast<size_t>(wire.to)];
      REQUIRE(wire.route.size() % 2 == 0);
      REQUIRE(wire.route.front().y == Approx(from.corner.y + from.height));
      REQUIRE(wire.route.back().y == Approx(to.corner.y));
      REQUIRE(wire.route.back().x > to.corner.x);
      REQUIRE(wire.route.back().x < to.corner.x + to.width);
    }
  }
}

TEST_CASE("A chain is drawn downwards") {
  std::vector<Box> boxes = {{}};
  std::vector<Wire> wires;
  for (int i = 1; i <= 5; ++i) {
    boxes.push_back({.parent = 0, .width = 50, .height = 20});
    if (i > 1) wires.push_back({i - 1, i, {}});
  }
  arrange(boxes, wires);
  for (size_t i = 2; i <= 5; ++i) {
    REQUIRE(boxes[i].corner.y > boxes[i - 1].corner.y);
    REQUIRE(boxes[i].corner.x == Approx(boxes[i - 1].corner.x));
  }
}

Graph small_graph() {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const AxisRules rules;
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const PathScope path("lm");
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=8 embed/mdl=16\"]"));
  const Tensor w = input("lm.stack.w", InputKind::kParameter,
                         parse_type("f32[\"layers=3 embed/mdl=16 out=16\"]"));
  const PathScope stack("stack");
  const auto body = [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) -> RepeatBody {
    const Tensor sum = einsum(carries[0], loop_slice(w), over("embed"));
    return {{rename(reshard(sum, "batch/data out/mdl"), "out", "embed") + 1.0}, {}};
  };
  output("y", repeat("layers", 3, {x}, {}, body).carries[0]);
  return graph;
}

TEST_CASE("A drawing shows layers, loops, parameters, pending sums and outputs") {
  const std::string svg = graph_svg(small_graph());
  REQUIRE_THAT(svg, Contains(">lm</text>"));
  REQUIRE_THAT(svg, Contains(">stack</text>"));
  REQUIRE_THAT(svg, Contains(">repeat x 3</text>"));
  REQUIRE_THAT(svg, Contains(">einsum</text>"));
  REQUIRE_THAT(svg, Contains(">add 1</text>"));
  REQUIRE_THAT(svg, Contains(">w</text>"));
  REQUIRE_THAT(svg, Contains("f32 batch/data=8 out=16 + sum(mdl)"));
  REQUIRE_THAT(svg, Contains("stroke-dasharray=\"4 3\""));
  REQUIRE_THAT(svg, Contains(">output y</text>"));
  REQUIRE_THAT(svg, Contains("tests/core/graph/svg_test.cc:"));
}

TEST_CASE("A drawing is well-formed: what opens closes, and text is escaped") {
  const std::string svg = graph_svg(small_graph());
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    REQUIRE(end != std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.back() == '/') continue;
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (name[0] != '/') {
      open.push_back(name);
      continue;
    }
    REQUIRE(!open.empty());
    REQUIRE("/" + open.back() == name);
    open.pop_back();
  }
  REQUIRE(open.empty());
  REQUIRE_THAT(svg, Contains("type=f32[&quot;batch/data=8 out/mdl=16&quot;]"));
}

}  // namespace
}  // namespace tessera
