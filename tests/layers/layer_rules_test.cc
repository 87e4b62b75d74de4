// SPDX-License-Identifier: Apache-2.0
// A layer's own axis rules, and weights declared with splits: layouts, scope and errors.
#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/fprop_scope.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/reference_models.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const std::string kTensorParallel = "mlp -> mdl, heads -> mdl, kv_heads -> mdl";

// A model traced on replica=2 data=2 mdl=2 under tensor-parallel rules; its weights' stored
// layouts.
struct Traced {
  explicit Traced(const LanguageModel::HParams& p, const Mesh& mesh = Mesh::standard({2, 2, 2})) {
    const AxisRules rules{parse_rules("embed -> data, " + kTensorParallel),
                          parse_rules("batch -> (replica, data), " + kTensorParallel)};
    const std::unique_ptr<BaseModel> model = Template<BaseModel>(p).instantiate();
    const TraceScope trace(graph, mesh, rules);
    const std::vector<Tensor> parameters = parameter_inputs(model->parameters());
    for (size_t i = 0; i < parameters.size(); ++i)
      stored[model->parameters().parameters()[i].path] = parameters[i].type().layout();
    Features features;
    for (const std::string name : {"ids", "labels"})
      features.tensors[name] =
          input(name, InputKind::kBatch,
                apply_rules(rules.activations, mesh,
                            make_type(DType::kI32, {{"batch", 4, {}}, {"seq", 12, {}}})));
    const FpropScope scope(parameters, features);
    output("loss", place((*model)(features).loss.sum));
  }
  // The layouts of `op` nodes below a path.
  std::vector<std::string> layouts(const std::string& op, const std::string& path) const {
    std::vector<std::string> found;
    for (const Node& node : graph.nodes())
      if (node.op->name == op && node.path == path)
        found.push_back(graph.type(node.outputs[0]).layout());
    return found;
  }
  Graph graph;
  std::map<std::string, std::string> stored;
};

FeedForward::HParams& feed_forward(LanguageModel::HParams& p) {
  return p.lm_tpl.as<TransformerLm::HParams>()
      .stacked_transformer_tpl.as<StackedTransformer::HParams>()
      .block_tpl.as<TransformerBlock::HParams>()
      .ffn_tpl.as<FeedForward::HParams>();
}

const std::string kFfn = "lm.transformer.x_layers[0].ffn";

TEST_CASE("a layer's rules apply to its own weights and activations only") {
  LanguageModel::HParams p = small_gpt2();
  const Traced usual(p);
  REQUIRE(usual.stored.at(kFfn + ".up") == "embed/data mlp/mdl");
  REQUIRE(usual.layouts("einsum", kFfn).front() == "batch/replica/data seq mlp/mdl");

  feed_forward(p).layer.rules = {.weights = "embed -> replica, mlp -> data",
                                 .activations = "mlp -> ()"};
  const Traced own(p);
  REQUIRE(own.stored.at(kFfn + ".up") == "embed/replica mlp/data");
  REQUIRE(own.stored.at(kFfn + ".down_bias") == "embed/replica");
  REQUIRE(own.layouts("einsum", kFfn).front() == "batch/replica/data seq mlp");
  const std::string attention = "lm.transformer.x_layers[0].attention";
  REQUIRE(own.stored.at(attention + ".query") == usual.stored.at(attention + ".query"));
  REQUIRE(own.layouts("einsum", attention) == usual.layouts("einsum", attention));
}

TEST_CASE("a layer's rules apply in every layer of a stack") {
  LanguageModel::HParams p = small_gpt2();
  feed_forward(p).layer.rules.weights = "mlp -> (mdl, data)";
  const Traced traced(p);
  REQUIRE(traced.stored.at("lm.transformer.x_layers[0].ffn.down") == "mlp/mdl/data embed");
  REQUIRE(traced.stored.at("lm.transformer.x_layers[1].ffn.down") == "mlp/mdl/data embed");
}

TEST_CASE("errors in a layer's rules name the layer") {
  const auto error = [](const std::string& weights, const std::string& activations) {
    LanguageModel::HParams p = small_gpt2();
    feed_forward(p).layer.rules = {weights, activations};
    return error_of([&] { Traced{p}; });
  };
  REQUIRE(error("mpl -> mdl", "") ==
          "rules.weights \"mpl -> mdl\": no weight of this layer has an axis 'mpl'; they have "
          "embed, mlp; did you mean 'mlp'? [in lm.transformer.x_layers[0].ffn]");
  REQUIRE(error("mlp -> model", "") ==
          "the mesh (replica=2 data=2 mdl=2) has no axis 'model'; did you mean 'mdl'? [in "
          "lm.transformer.x_layers[0].ffn.up]");
  REQUIRE(error("mlp = mdl", "") ==
          "rules \"mlp = mdl\": expected '->' at character 5, got '= mdl' [in "
          "lm.transformer.x_layers[0].ffn]");
  REQUIRE_THAT(error("", "mlp -> mode"),
               Catch::Contains("has no axis 'mode'; did you mean 'mdl'?") &&
                   Catch::Contains("[in lm.transformer.x_layers[0].ffn]"));
  // A rule that gives the layer's tensors incompatible layouts.
  REQUIRE_THAT(error("", "residual: embed -> mdl"),
               Catch::Contains("embed/mdl") && Catch::Contains("x_layers[0]"));
}

// Declares its weight with splits, and reads it in its stored layout.
class Declared final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Declared;
    static constexpr std::string_view kName = "Declared";
    FIELDS()
  };
  explicit Declared(const HParams&) {
    std::vector<Axis> axes = parse_axes("embed/mdl/data mlp");
    axes[0].size = 8;
    axes[1].size = 4;
    w_ = weight("w", axes, ones());
  }
  Tensor fprop(Tensor) const override { return stored(w_, DType::kF32); }

 private:
  Weight w_;
};

TEST_CASE("a weight declared with splits is stored that way, whatever the rules say") {
  const Template<UnaryLayer> tpl = Declared::HParams{};
  const std::unique_ptr<UnaryLayer> layer = tpl.instantiate();
  REQUIRE(layer->parameters().at(0).type.layout() == "embed mlp");
  const Mesh mesh = Mesh::standard({1, 2, 2});
  const AxisRules rules{parse_rules("mlp -> mdl, embed -> ()"), {}};
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const FpropScope scope(parameter_inputs(layer->parameters()), {});
  REQUIRE((*layer)({}).type().layout() == "embed/mdl/data mlp");
}

TEST_CASE("the rules of an Mlp are those of its linear maps, and norms and biases have their own") {
  const LayerRules rules{.weights = "embed -> mdl"};
  const auto rules_of = [](const Template<UnaryLayer>& tpl, int32_t weight) {
    const std::unique_ptr<UnaryLayer> layer = tpl.instantiate();
    return rules_text(layer->parameters().at(weight).rules);
  };
  const Mlp::HParams mlp{.input_dims = 4, .hidden_dims = {8, 8}, .layer = {.rules = rules}};
  REQUIRE(rules_of(mlp, 0) == "embed -> mdl");
  REQUIRE(rules_of(mlp, 2) == "embed -> mdl");
  REQUIRE(rules_of(LayerNorm::HParams{.model_dims = 4, .layer = {.rules = rules}}, 0) ==
          "embed -> mdl");
  REQUIRE(rules_of(RmsNorm::HParams{.model_dims = 4, .layer = {.rules = rules}}, 0) ==
          "embed -> mdl");
  REQUIRE(rules_of(Bias::HParams{.dims = 4, .layer = {.rules = rules}}, 0) == "embed -> mdl");
}

TEST_CASE("a model reads all layers of weights that are split over stages, gathered once") {
  const Mesh mesh({{"stage", 2}, {"data", 2}});
  const AxisRules rules{parse_rules("layers -> stage, embed -> data"),
                        parse_rules("batch -> data")};
  LanguageModel::HParams p = small_gpt2();
  Template<SequenceLayer>& stack = p.lm_tpl.as<TransformerLm::HParams>().stacked_transformer_tpl;
  stack = Repeated::HParams{.block_tpl = stack.as<StackedTransformer::HParams>().block_tpl};
  const std::unique_ptr<BaseModel> model = Template<BaseModel>(p).instantiate();
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const std::vector<Tensor> parameters = parameter_inputs(model->parameters());
  const FpropScope scope(parameters, {});
  int64_t stacked = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& stored = parameters[i];
    const Tensor& read = FpropScope::current().parameter(static_cast<int32_t>(i));
    const Parameter& declared = model->parameters().parameters()[i];
    INFO(declared.path);
    if (declared.stack == 0) {
      REQUIRE(read.id() == stored.id());
      continue;
    }
    ++stacked;
    REQUIRE(stored.type().layout().starts_with("layers/stage"));
    Type whole = stored.type();
    whole.axes.front().split.clear();
    REQUIRE(read.type() == whole);
    REQUIRE(graph.value(read.id()).name == declared.path);
  }
  REQUIRE(stacked > 0);
  REQUIRE(std::ssize(graph.nodes()) == stacked);
}

}  // namespace
}  // namespace tessera
