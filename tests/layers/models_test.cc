// SPDX-License-Identifier: Apache-2.0
// Whole models: stacking, dropout, inheritance of sizes, metrics, and the errors of incomplete
// configurations.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "layers/attention/latent_attention.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/models/classification_model.h"
#include "layers/models/transformer.h"
#include "layers/parameter.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/model_outputs.h"
#include "tests/support/reference_models.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<double>;

// Losses and gradients of a model in training, by weight path.
NamedValues trained(const LanguageModel::HParams& p, std::string_view remat = "save_everything",
                    Mode mode = Mode::kTrain) {
  constexpr std::string_view kGradient = "gradient/";
  NamedValues trained;
  for (const auto& [name, values] : model_outputs(p, remat, mode)) {
    if (name == "loss") trained[name] = values;
    if (name.starts_with(kGradient)) trained[name.substr(kGradient.size())] = values;
  }
  return trained;
}

LanguageModel::HParams tiny(Template<SequenceLayer> stack) {
  return {.lm_tpl = TransformerLm::HParams{.vocab_size = 17,
                                           .model_dims = 8,
                                           .num_layers = 3,
                                           .num_heads = 2,
                                           .hidden_dims = 12,
                                           .stacked_transformer_tpl = std::move(stack),
                                           .embedding_dropout_rate = 0.1}};
}

TransformerBlock::HParams dropping_block() {
  return {.ffn_tpl = FeedForward::HParams{.dropout_rate = 0.2}, .residual_dropout_rate = 0.1};
}

LanguageModel::HParams with_dtypes(LanguageModel::HParams p, const DTypePolicy& dtypes) {
  p.lm_tpl.as<TransformerLm::HParams>().dtypes = dtypes;
  return p;
}

// For each remat policy.
void require_equal_stacks(const DTypePolicy& dtypes,
                          const Template<SequenceLayer>& block = dropping_block()) {
  const auto unrolled =
      trained(with_dtypes(tiny(StackedTransformer::HParams{.block_tpl = block}), dtypes));
  for (const std::string remat : {"save_everything", "save_nothing", "query_proj,ffn1"}) {
    INFO(remat);
    const auto repeated =
        trained(with_dtypes(tiny(Repeated::HParams{.block_tpl = block}), dtypes), remat);
    REQUIRE(repeated.at("loss") == unrolled.at("loss"));
    for (const auto& [path, stacked] : repeated) {
      const size_t bracket = path.find("[]");
      if (bracket == path.npos) {
        INFO(path);
        REQUIRE(unrolled.at(path) == stacked);
        continue;
      }
      const size_t size = stacked.size() / 3;
      for (size_t layer = 0; layer < 3; ++layer) {
        std::string one = path;
        one.insert(bracket + 1, std::to_string(layer));
        INFO(one);
        const Values slice(stacked.begin() + static_cast<int64_t>(layer * size),
                           stacked.begin() + static_cast<int64_t>((layer + 1) * size));
        REQUIRE(unrolled.at(one) == slice);
      }
    }
  }
}

TEST_CASE("repeated and unrolled layers are bitwise equal, with dropout and remat") {
  require_equal_stacks({});
  require_equal_stacks({.compute = DType::kBF16, .matmul = MatmulPrecision::kFp8});
  TransformerBlock::HParams gated = dropping_block();
  gated.ffn_tpl = FeedForward::HParams{
      .activation_tpl = SiLU::HParams{}, .use_gated_activation = true, .dropout_rate = 0.2};
  require_equal_stacks({.compute = DType::kBF16}, gated);
}

TEST_CASE("a sequence of a dense block and one with experts is repeated or unrolled alike") {
  TransformerBlock::HParams sparse = dropping_block();
  sparse.ffn_tpl =
      MoeFeedForward::HParams{.num_experts = 4,
                              .router_tpl = TopKRouter::HParams{
                                  .capacity_factor = 1.0, .z_loss_weight = 0.1, .jitter = 0.1}};
  const LayerSequence::HParams pair{.layers_tpl = {dropping_block(), sparse}};
  require_equal_stacks({}, pair);
}

TEST_CASE(
    "latent attention is repeated or unrolled alike, whichever of its projections are saved") {
  TransformerBlock::HParams block = dropping_block();
  block.attention_tpl =
      LatentAttention::HParams{.kv_lora_rank = 4, .q_lora_rank = 6, .rope_dims = 2};
  require_equal_stacks({}, block);
  require_equal_stacks({.compute = DType::kBF16, .matmul = MatmulPrecision::kFp8}, block);
  const LanguageModel::HParams p = tiny(Repeated::HParams{.block_tpl = block});
  const NamedValues recomputed = trained(p, "save_nothing");
  for (const std::string saved : {"kv_latent_proj", "q_latent_proj", "key_rope_proj",
                                  "query_rope_proj", "key_proj,value_proj,query_proj", "context"}) {
    INFO(saved);
    REQUIRE(trained(p, saved) == recomputed);
  }
}

TEST_CASE("dense layers may come before a loop over layers with experts") {
  TransformerBlock::HParams sparse = dropping_block();
  sparse.ffn_tpl = MoeFeedForward::HParams{.num_experts = 4};
  const StackedTransformer::HParams dense{.num_layers = 1, .block_tpl = dropping_block()};
  const auto after_dense = [&](const Template<SequenceLayer>& stack) {
    return trained(tiny(LayerSequence::HParams{.layers_tpl = {dense, stack}}), "save_nothing");
  };
  const NamedValues repeated = after_dense(Repeated::HParams{.num_layers = 3, .block_tpl = sparse});
  const NamedValues unrolled =
      after_dense(StackedTransformer::HParams{.num_layers = 3, .block_tpl = sparse});
  REQUIRE(repeated.at("loss") == unrolled.at("loss"));
  REQUIRE(repeated.contains("lm.transformer.part1.x_layers[].ffn.router.w"));
  const std::string first = "lm.transformer.part0.x_layers[0].ffn.up";
  REQUIRE(repeated.at(first) == unrolled.at(first));
}

TEST_CASE("dropout changes the loss in training and not in evaluation") {
  const auto loss = [](double rate, Mode mode) {
    const TransformerBlock::HParams block{.residual_dropout_rate = rate};
    const auto p = tiny(StackedTransformer::HParams{.block_tpl = block});
    return trained(p, "save_everything", mode).at("loss");
  };
  REQUIRE(loss(0.1, Mode::kTrain) != loss(0.2, Mode::kTrain));
  REQUIRE(loss(0.1, Mode::kEval) == loss(0.2, Mode::kEval));
}

TEST_CASE("bf16 compute keeps f32 weights and gradients, and a similar loss") {
  LanguageModel::HParams p = tiny(Repeated::HParams{});
  const auto wide = trained(p);
  p = with_dtypes(p, {.compute = DType::kBF16});
  const auto narrow = trained(p);
  REQUIRE(narrow.at("loss") != wide.at("loss"));
  REQUIRE(narrow.at("loss").front() == Approx(wide.at("loss").front()).epsilon(2e-3));
  const auto model = Template<BaseModel>(p).instantiate();
  for (const Parameter& each : model->parameters().parameters())
    REQUIRE(each.type.dtype == DType::kF32);
}

// The cosine of the angle between gradients with and without rounding.
TEST_CASE("8-bit products change the loss and the gradients a little") {
  const LanguageModel::HParams p = tiny(Repeated::HParams{});
  const auto exact = trained(p);
  const auto rounded = trained(with_dtypes(p, {.matmul = MatmulPrecision::kFp8}));
  REQUIRE(rounded.at("loss") != exact.at("loss"));
  REQUIRE(rounded.at("loss").front() == Approx(exact.at("loss").front()).epsilon(2e-2));
  for (const auto& [path, gradient] : exact) {
    INFO(path);
    double dot = 0.0, squares = 0.0, rounded_squares = 0.0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      dot += gradient[i] * rounded.at(path)[i];
      squares += gradient[i] * gradient[i];
      rounded_squares += rounded.at(path)[i] * rounded.at(path)[i];
    }
    if (squares < 1e-12) continue;  // The bias of keys has none.
    REQUIRE(dot > 0.9 * std::sqrt(squares * rounded_squares));
  }
}

TEST_CASE("every layer inherits the sizes of the language model") {
  const auto model = Template<BaseModel>(tiny(Repeated::HParams{})).instantiate();
  REQUIRE(weight_list(model->parameters()) ==
          std::vector<std::string>{
              "lm.softmax.w f32[\"vocab=17 embed=8\"] xavier 1",
              "lm.transformer.x_layers[].attention_norm.scale f32[\"layers=3 embed=8\"] constant 1",
              "lm.transformer.x_layers[].attention_norm.bias f32[\"layers=3 embed=8\"] constant 0",
              "lm.transformer.x_layers[].attention.query f32[\"layers=3 embed=8 heads=2 "
              "head_dim=4\"] xavier 1",
              "lm.transformer.x_layers[].attention.key f32[\"layers=3 embed=8 kv_heads=2 "
              "head_dim=4\"] xavier 1",
              "lm.transformer.x_layers[].attention.value f32[\"layers=3 embed=8 kv_heads=2 "
              "head_dim=4\"] xavier 1",
              "lm.transformer.x_layers[].attention.output f32[\"layers=3 heads=2 head_dim=4 "
              "embed=8\"] xavier 1",
              "lm.transformer.x_layers[].ffn_norm.scale f32[\"layers=3 embed=8\"] constant 1",
              "lm.transformer.x_layers[].ffn_norm.bias f32[\"layers=3 embed=8\"] constant 0",
              "lm.transformer.x_layers[].ffn.up f32[\"layers=3 embed=8 mlp=12\"] xavier 1",
              "lm.transformer.x_layers[].ffn.down f32[\"layers=3 mlp=12 embed=8\"] xavier 1",
              "lm.final_ln.scale f32[\"embed=8\"] constant 1",
              "lm.final_ln.bias f32[\"embed=8\"] constant 0"});
}

TEST_CASE("all missing sizes are reported at once, by path") {
  const std::string error = error_of([] {
    Template<BaseModel>(
        LanguageModel::HParams{.lm_tpl = TransformerLm::HParams{.model_dims = 8, .num_heads = 2}})
        .instantiate();
  });
  for (const std::string missing :
       {"lm_tpl.vocab_size", "lm_tpl.num_layers", "lm_tpl.hidden_dims"}) {
    INFO(error);
    REQUIRE(error.find(missing) != error.npos);
  }
  REQUIRE(error.find("lm_tpl.model_dims") == error.npos);
}

TEST_CASE("errors in building and tracing carry the layer's path") {
  LanguageModel::HParams p = tiny(StackedTransformer::HParams{});
  p.lm_tpl.as<TransformerLm::HParams>().num_heads = 3;
  REQUIRE_THAT(error_of([&] { Template<BaseModel>(p).instantiate(); }),
               Contains("num_heads=3 does not divide model_dims=8") &&
                   Contains("lm.transformer.x_layers[0].attention"));
  REQUIRE_THAT(error_of([] {
                 Template<BaseModel>(tiny(Repeated::HParams{.block_tpl = Repeated::HParams{}}))
                     .instantiate();
               }),
               Contains("a Repeated layer cannot contain another"));
}

TEST_CASE("the number of unrolled layers has a limit, and the error names Repeated") {
  LanguageModel::HParams p = tiny(StackedTransformer::HParams{});
  p.lm_tpl.as<TransformerLm::HParams>().num_layers = 5000;
  REQUIRE_THAT(error_of([&] { Template<BaseModel>(p).instantiate(); }),
               Contains("lm_tpl.stacked_transformer_tpl.num_layers is 5000, expected 1 to 1024 "
                        "(each has its own nodes; Repeated takes more)"));
}

TEST_CASE("an untied softmax needs a separate embedding") {
  LanguageModel::HParams p = tiny(StackedTransformer::HParams{});
  p.lm_tpl.as<TransformerLm::HParams>().softmax_tpl = FullSoftmax::HParams{};
  REQUIRE_THAT(error_of([&] { Template<BaseModel>(p).instantiate(); }),
               Contains("set separate_embedding_tpl"));
}

TEST_CASE("an error about an absent feature names those present") {
  Features features;
  features.tensors["ids"] = {};
  features.tensors["weights"] = {};
  REQUIRE(error_of([&] { features.get("labels"); }) ==
          "the batch has no feature 'labels' (it has: ids, weights)");
  REQUIRE(error_of([&] { features.get("weight"); }) ==
          "the batch has no feature 'weight'; did you mean 'weights'? (it has: ids, weights)");
  REQUIRE(!features.find("labels").valid());
}

TEST_CASE("two layers with the same name are refused") {
  ParameterTable table;
  Parameter parameter;
  parameter.path = "ffn.up";
  table.add(parameter);
  REQUIRE_THAT(error_of([&] { table.add(parameter); }), Contains("'ffn.up' is declared twice"));
}

TEST_CASE("metrics are weighted sums with their weights") {
  LayerTrial trial;
  const std::string row = "f32[\"batch=1 seq=3\"]";
  const CrossEntropy scores = {trial.in("loss", row, {1, 2, 3}), trial.in("ll", row, {-4, -5, -6}),
                               trial.in("correct", row, {1, 1, 0})};
  const ModelOutput result = weighted_output(scores, trial.in("weights", row, {1, 0, 0.5}));
  output("sum", result.loss.sum);
  output("weight", result.loss.weight);
  output("log_pplx", result.metrics.at("log_pplx").sum);
  output("accuracy", result.metrics.at("accuracy").sum);
  const auto values = evaluate(trial.graph(), trial.inputs());
  REQUIRE(values.at("sum").values == Values{2.5});
  REQUIRE(values.at("weight").values == Values{1.5});
  REQUIRE(values.at("log_pplx").values == Values{7});
  REQUIRE(values.at("accuracy").values == Values{1});
}

TEST_CASE("a classifier scores one label per example") {
  LayerTrial trial;
  const ClassificationModel::HParams p{
      .network_tpl =
          Mlp::HParams{.input_dims = 2, .hidden_dims = {2}, .activation_tpl = Identity::HParams{}},
      .softmax_tpl = FullSoftmax::HParams{.vocab_size = 2, .model_dims = 2}};
  Features features;
  features.tensors["inputs"] = trial.in("inputs", "f32[\"batch=1 features=2\"]", {1, 2});
  features.tensors["labels"] = trial.in("labels", "i32[\"batch=1\"]", {1});
  const Values identity = {1, 0, 0, 1};
  const Values loss = trial
                          .run(Template<BaseModel>(p),
                               {{"network.linears[0].w", identity}, {"softmax.w", identity}},
                               [&](const BaseModel& model) { return model(features).loss.sum; })
                          .values;
  REQUIRE(loss.front() == Approx(std::log(1 + std::exp(-1.0))));  // Logits 1 and 2.
}

}  // namespace
}  // namespace tessera
