// SPDX-License-Identifier: Apache-2.0
// Template: value semantics, typed access, instantiation, required fields, the registry.
#include "core/hparams/template.h"

#include "core/hparams/tree.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace tessera {
namespace sample {

struct Twin : Unary {
  struct HParams {
    using Instance = Twin;
    static constexpr std::string_view kName = "ReLU";  // Already registered.
    FIELDS()
  };
  explicit Twin(const HParams&) {}
  std::string text() const override { return "twin"; }
};

struct Curve {
  virtual ~Curve() = default;
};

// Its HParams are a type of their own, as in Schedule<Shape>.
template <typename Shape>
struct CurveOf : Curve {
  using HParams = Shape;
  explicit CurveOf(const Shape&) {}
};

struct Square {
  using Instance = CurveOf<Square>;
  static constexpr std::string_view kName = "Square";
  FIELDS()
};

}  // namespace sample

namespace {

using sample::FeedForward;
using sample::Leaky;
using sample::Model;
using sample::ReLU;
using sample::Twin;
using sample::Unary;

Model::HParams model() {
  return {.vocab_size = 100, .ffn_tpl = FeedForward::HParams{.hidden_dims = 8}};
}

TEST_CASE("A template copies deeply and compares by value") {
  Template<Unary> a = model();
  Template<Unary> b = a;
  REQUIRE(a == b);
  b.as<Model::HParams>().ffn_tpl.as<FeedForward::HParams>().hidden_dims = 9;
  REQUIRE_FALSE(a == b);
  REQUIRE(a.as<Model::HParams>().ffn_tpl.as<FeedForward::HParams>().hidden_dims.get() == 8);
  b = a;
  REQUIRE(a == b);
}

TEST_CASE("Templates of different classes differ, and an unset template equals only unset ones") {
  const Template<Unary> unset;
  const Template<Unary> relu = ReLU::HParams{};
  const Template<Unary> leaky = Leaky::HParams{};
  REQUIRE(unset == Template<Unary>());
  REQUIRE_FALSE(unset == relu);
  REQUIRE_FALSE(relu == leaky);
  REQUIRE_FALSE(unset.has());
  REQUIRE(relu.name() == "ReLU");
}

TEST_CASE("the error for a class that is not registered gives a line that registers it") {
  const Template<sample::Curve> square = sample::Square{};
  REQUIRE_THAT(error_of([&] { check_registered(square.to_tree()); }),
               Catch::EndsWith("const tessera::TemplateRegistrar<tessera::sample::Curve, "
                               "tessera::sample::Square::Instance> kRegister;"));
  const TemplateRegistrar<sample::Curve, sample::Square::Instance> registrar;
  REQUIRE_NOTHROW(check_registered(square.to_tree()));
}

TEST_CASE("as<P>() gives the HParams, or an error that names both classes") {
  Template<Unary> leaky = Leaky::HParams{.slope = 0.2};
  REQUIRE(leaky.holds<Leaky::HParams>());
  REQUIRE_FALSE(leaky.holds<ReLU::HParams>());
  REQUIRE(leaky.as<Leaky::HParams>().slope == 0.2);
  REQUIRE(error_of([&] { leaky.as<ReLU::HParams>(); }) == "the template holds Leaky, not ReLU");
  REQUIRE(error_of([] { Template<Unary>().as<ReLU::HParams>(); }) ==
          "the template is unset, not ReLU");
}

TEST_CASE("instantiate makes the object and its children") {
  Template<Unary> tpl = model();
  REQUIRE(tpl.instantiate()->text() == "ffn(8, f32, relu)");
}

TEST_CASE("Unset fields of an object come from the enclosing HParams") {
  Model::HParams p = model();
  p.dtypes = DTypePolicy{.compute = DType::kBF16};
  p.ffn_tpl.as<FeedForward::HParams>().activation_tpl = Leaky::HParams{};
  const Template<Unary> tpl = p;
  REQUIRE(tpl.instantiate()->text() == "ffn(8, bf16, leaky(0.01, bf16))");
  // Instantiation does not change the template.
  REQUIRE_FALSE(tpl.as<Model::HParams>().ffn_tpl.as<FeedForward::HParams>().dtypes.has());
}

TEST_CASE("A value set in an inner struct is not overridden by an outer one") {
  Model::HParams p = model();
  p.dtypes = DTypePolicy{.compute = DType::kBF16};
  FeedForward::HParams& ffn = p.ffn_tpl.as<FeedForward::HParams>();
  ffn.dtypes = DTypePolicy{};
  ffn.activation_tpl = Leaky::HParams{};
  // The activation inherits from the nearest struct that sets it, the feed-forward layer.
  REQUIRE(Template<Unary>(p).instantiate()->text() == "ffn(8, f32, leaky(0.01, f32))");
}

// Gives its feed-forward layer another activation, which leaves a Field unset.
class WithLeaky final : public Unary {
 public:
  struct HParams {
    using Instance = WithLeaky;
    static constexpr std::string_view kName = "WithLeaky";
    Template<Unary> ffn_tpl = FeedForward::HParams{.hidden_dims = 8};
    Field<DTypePolicy> dtypes;
    FIELDS(ffn_tpl, dtypes)
  };
  explicit WithLeaky(const HParams& p) {
    Template<Unary> changed = p.ffn_tpl;
    changed.as<FeedForward::HParams>().activation_tpl = Leaky::HParams{.slope = 0.3};
    texts_ = p.ffn_tpl.instantiate()->text() + " " + changed.instantiate()->text();
  }
  std::string text() const override { return texts_; }

 private:
  std::string texts_;
};

TEST_CASE("A constructor changes a child's template, and what it leaves unset is inherited") {
  WithLeaky::HParams p;
  p.dtypes = DTypePolicy{.compute = DType::kBF16};
  REQUIRE(Template<Unary>(p).instantiate()->text() ==
          "ffn(8, bf16, relu) ffn(8, bf16, leaky(0.3, bf16))");
}

TEST_CASE("All missing required fields are reported together, by path") {
  const Template<Unary> tpl = Model::HParams{};
  REQUIRE(error_of([&] { tpl.instantiate(); }) ==
          "Model: 2 required fields are not set: vocab_size, ffn_tpl.hidden_dims; set them in the "
          "experiment or with --set");
  const Template<Unary> ffn = FeedForward::HParams{};
  REQUIRE(error_of([&] { ffn.instantiate(); }) ==
          "FeedForward: a required field is not set: hidden_dims; set it in the experiment or with "
          "--set");
}

TEST_CASE("An unset template cannot be instantiated") {
  REQUIRE(error_of([] { Template<Unary>().instantiate(); }) ==
          "the Template<sample::Unary> is unset; set it to one of Clipped, FeedForward, Leaky, "
          "Model, ReLU");
}

TEST_CASE("A name registered twice is reported, and the first class is used") {
  REQUIRE(template_clashes().empty());
  const TemplateRegistrar<Unary, Twin> again;
  REQUIRE(template_clashes() ==
          std::vector<std::string>{"two classes are registered as sample::Unary 'ReLU'"});
  Template<Unary> tpl;
  from_tree(Tree::typed("ReLU", {}), tpl);
  REQUIRE(tpl.instantiate()->text() == "relu");
}

TEST_CASE("The names registered for a base are listed") {
  REQUIRE(template_names(typeid(Unary)) ==
          std::vector<std::string>{"Clipped", "FeedForward", "Leaky", "Model", "ReLU"});
}

}  // namespace
}  // namespace tessera
