// SPDX-License-Identifier: Apache-2.0
// Calling a layer opens its scope: nodes and errors carry its path, and its own rules apply, though
// its class overrides fprop only and does not mention scopes.
#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"
#include "layers/layer.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/trial.h"

namespace tessera {

// A kind of layer with its own signature.
class Mixer : public LayerOf<Tensor(Tensor x, const Tensor& y)> {
 protected:
  using LayerOf::LayerOf;
};

class Product final : public Mixer {
 public:
  struct HParams {
    using Instance = Product;
    static constexpr std::string_view kName = "Product";
    FIELDS()
  };
  explicit Product(const HParams&) {}

 private:
  Tensor fprop(Tensor x, const Tensor& y) const override { return x * y; }
};

// Places its operand by its own rules.
class Placer final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Placer;
    static constexpr std::string_view kName = "Placer";
    LayerHParams layer;
    FIELDS(layer)
  };
  explicit Placer(const HParams& p) : UnaryLayer(p.layer) {}

 private:
  Tensor fprop(Tensor x) const override { return place(exp(x)); }
};

// x·exp(x), of two layers below.
class Pair final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Pair;
    static constexpr std::string_view kName = "Pair";
    Template<UnaryLayer> first_tpl = Placer::HParams{};
    Template<Mixer> second_tpl = Product::HParams{};
    FIELDS(first_tpl, second_tpl)
  };
  explicit Pair(const HParams& p)
      : first_(child("first", p.first_tpl)), second_(child("second", p.second_tpl)) {}

 private:
  Tensor fprop(Tensor x) const override { return second_(x, first_(x)) + x; }

  ChildLayer<UnaryLayer> first_;
  ChildLayer<Mixer> second_;
};

// Calls a Pair as the layer "pair".
class Outer final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Outer;
    static constexpr std::string_view kName = "Outer";
    Pair::HParams pair;
    FIELDS(pair)
  };
  explicit Outer(const HParams& p) : pair_(child<UnaryLayer>("pair", p.pair)) {}

 private:
  Tensor fprop(Tensor x) const override { return pair_(x); }

  ChildLayer<UnaryLayer> pair_;
};

namespace {

std::vector<std::string> nodes_with_paths(const Graph& graph) {
  std::vector<std::string> nodes;
  for (const Node& node : graph.nodes())
    nodes.push_back(fmt::format("{}: {}", node.path, node.op->name));
  return nodes;
}

TEST_CASE("the nodes of a layer carry its path, whatever its signature") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"embed=2\"]", {0, 1});
  const std::vector<double> values = trial.apply(Outer::HParams{}, x);
  REQUIRE(values[0] == 0.0);
  REQUIRE(values[1] == Approx(std::exp(1.0) + 1.0));
  REQUIRE(nodes_with_paths(trial.graph()) ==
          std::vector<std::string>{"pair.first: exp", "pair.second: mul", "pair: add"});
}

TEST_CASE("an error in a layer names its path") {
  LayerTrial trial;
  const Template<Mixer> product = Product::HParams{};
  const Tensor x = trial.in("x", "f32[\"embed=2\"]", {0, 1});
  const Tensor y = trial.in("y", "f32[\"embed=3\"]", {0, 1, 2});
  const PathScope lm("lm");
  REQUIRE_THAT(error_of([&] { (*product.instantiate())(x, y); }), Catch::EndsWith("[in lm]"));
  Outer::HParams p;
  p.pair.first_tpl = Placer::HParams{.layer = {.rules = {.activations = "embed -> mode"}}};
  REQUIRE_THAT(error_of([&] { trial.apply(p, x); }),
               Catch::Contains("no axis 'mode'") && Catch::EndsWith("[in lm.pair.first]"));
}

TEST_CASE("a layer's own rules apply in its fprop only") {
  LayerTrial trial(Mode::kEval, Mesh::standard({1, 2, 1}));
  const Tensor x = trial.in("x", "f32[\"embed=2\"]", {0, 1});
  const Template<UnaryLayer> placer =
      Placer::HParams{.layer = {.rules = {.activations = "embed -> data"}}};
  REQUIRE((*placer.instantiate())(x).type().layout() == "embed/data");
  REQUIRE(place(x).type().layout() == "embed");
}

}  // namespace
}  // namespace tessera
