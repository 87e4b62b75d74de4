// SPDX-License-Identifier: Apache-2.0
// Auxiliary losses and metrics of layers: what a model collects, from loops and rematerialised
// regions, and what is refused.
#include "layers/summaries.h"

#include <functional>
#include <memory>

#include "core/base/error.h"
#include "core/compile/simplify.h"
#include "core/graph/trace.h"
#include "core/ops/repeat.h"
#include "layers/models/language_model.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/model_outputs.h"
#include "tests/support/reporting_layer.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<double>;

constexpr int64_t kLayers = 3, kEmbed = 8;
constexpr double kLossWeight = 0.1;

LanguageModel::HParams model_of(Template<SequenceLayer> stack) {
  return {.lm_tpl = TransformerLm::HParams{.vocab_size = 17,
                                           .model_dims = kEmbed,
                                           .num_layers = kLayers,
                                           .num_heads = 2,
                                           .hidden_dims = 12,
                                           .stacked_transformer_tpl = std::move(stack)}};
}

TransformerBlock::HParams reporting_block(double weight = kLossWeight) {
  return {.ffn_tpl = ReportingFeedForward::HParams{.loss_weight = weight}};
}

double mean(const NamedValues& outputs, const std::string& name) {
  return outputs.at("sum/" + name).front() / outputs.at("weight/" + name).front();
}

const std::string kStack = "lm.transformer.x_layers[].ffn.";
std::string layer_name(int64_t layer, const std::string& name) {
  return name_in_stack(kStack, layer) + name;
}

// Element `layer` of an array with the leading axis `layers`.
Values slice(const Values& stacked, int64_t layer) {
  const int64_t size = static_cast<int64_t>(stacked.size()) / kLayers;
  return {stacked.begin() + layer * size, stacked.begin() + (layer + 1) * size};
}

TEST_CASE("the optimised loss is the mean loss of the tokens plus all auxiliary losses") {
  const auto stack = [](double weight) {
    return model_of(StackedTransformer::HParams{.block_tpl = reporting_block(weight)});
  };
  const NamedValues outputs = model_outputs(stack(kLossWeight));
  double sum = 0.0;
  for (int64_t i = 0; i < kLayers; ++i) {
    const double loss = mean(outputs, layer_name(i, "squares"));
    REQUIRE(loss > 0.0);
    sum += loss;
  }
  REQUIRE(mean(outputs, "aux_loss") == Approx(sum));
  REQUIRE(outputs.at("loss").front() == Approx(mean(outputs, "log_pplx") + sum));

  // The gradient of the sum is the sum of the gradients, and linear in the weight of a loss.
  const NamedValues none = model_outputs(stack(0.0)),
                    twice = model_outputs(stack(2.0 * kLossWeight));
  bool differs = false;
  for (const auto& [name, values] : outputs) {
    if (!name.starts_with("gradient/")) continue;
    INFO(name);
    Values expected;
    for (size_t i = 0; i < values.size(); ++i)
      expected.push_back((none.at(name)[i] + twice.at(name)[i]) / 2.0);
    require_close(values, expected, 1e-6);
    differs = differs || values != none.at(name);
  }
  REQUIRE(differs);
}

TEST_CASE("evaluation reports auxiliary losses, and its loss leaves them out") {
  const auto p = model_of(Repeated::HParams{.block_tpl = reporting_block()});
  const NamedValues outputs = model_outputs(p, "save_everything", Mode::kEval);
  REQUIRE(mean(outputs, "aux_loss") > 1e-4);
  REQUIRE(outputs.at("loss").front() == Approx(mean(outputs, "log_pplx")));
}

TEST_CASE("repeated and unrolled layers add the same values, whatever is rematerialised") {
  const NamedValues unrolled =
      model_outputs(model_of(StackedTransformer::HParams{.block_tpl = reporting_block()}));
  for (const std::string remat : {"save_everything", "save_nothing", "query_proj,ffn1"}) {
    INFO(remat);
    const NamedValues repeated =
        model_outputs(model_of(Repeated::HParams{.block_tpl = reporting_block()}), remat);
    REQUIRE(repeated.at("loss").front() == Approx(unrolled.at("loss").front()).epsilon(1e-6));
    REQUIRE(repeated.at("sum/" + kStack + "load").size() == kLayers * kEmbed);
    for (const auto& [name, stacked] : repeated) {
      INFO(name);
      const bool is_stacked = name.find("[]") != name.npos;
      for (int64_t i = 0; is_stacked && i < kLayers; ++i) {
        const bool shares_weight = stacked.size() == 1;
        require_close(shares_weight ? stacked : slice(stacked, i),
                      unrolled.at(name_in_stack(name, i)), 1e-6);
      }
    }
  }
}

// The products of the batches x[batch=4] by a weight, of a loop over two halves.
TEST_CASE("loops that are not over layers add up their iterations") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"half=2 batch=2\"]", {1, 2, 3, 5});
  const SummaryScope summaries;
  repeat("half", 2, {}, {x}, [&](Tensor, auto, std::vector<Tensor> slices) -> RepeatBody {
    add_loss("sum", reduce_sum(slices[0]));
    add_metric("each", {slices[0], reduce_sum(slices[0])});
    return {};
  });
  output("loss", summaries.losses().at("sum"));
  output("metric", summaries.metrics().at("each").sum);
  output("weight", summaries.metrics().at("each").weight);
  const auto outputs = evaluate(trial.graph(), trial.inputs());
  REQUIRE(outputs.at("loss").values == Values{11});
  REQUIRE(outputs.at("metric").values == Values{4, 7});
  REQUIRE(outputs.at("weight").values == Values{11});
}

TEST_CASE("where nobody collects, a layer adds nothing") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[]", {1});
  REQUIRE(!collects_summaries());
  const auto nodes = trial.graph().nodes().size();
  add_loss("sum", x);
  add_metric("sum", {x, x});
  REQUIRE(trial.graph().nodes().size() == nodes);
  const SummaryScope summaries;
  REQUIRE(collects_summaries());
  REQUIRE(summaries.empty());
}

TEST_CASE("logits of a model trace what they would without summaries") {
  const auto logits_nodes = [](const TransformerBlock::HParams& block) {
    const std::unique_ptr<BaseModel> model =
        Template<BaseModel>(model_of(StackedTransformer::HParams{.block_tpl = block}))
            .instantiate();
    Graph graph;
    const Mesh mesh;
    const AxisRules rules;
    const TraceScope trace(graph, mesh, rules);
    Features features;
    features.mode = Mode::kEval;
    features.tensors["ids"] = input("ids", InputKind::kBatch, parse_type("i32[\"batch=2 seq=6\"]"));
    const FpropScope scope(parameter_inputs(model->parameters()), features);
    output("logits", model->logits(features));
    return dce(graph).nodes().size();
  };
  REQUIRE(logits_nodes(reporting_block()) == logits_nodes({}));
}

TEST_CASE("wrong names, types and repetitions are refused, with the line that adds them") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[]", {1});
  const Tensor row = trial.in("row", "f32[\"experts=4\"]", {1, 2, 3, 4});
  const Tensor square = trial.in("square", "f32[\"experts=2 seq=2\"]", {1, 2, 3, 4});
  const Tensor narrow = trial.in("narrow", "bf16[]", {1});
  const SummaryScope summaries;
  const PathScope layer("ffn");
  const auto refused = [](const std::function<void()>& add, const std::string& message) {
    REQUIRE_THAT(error_of(add), Contains(message) && Contains("ffn"));
  };
  const auto add_row = [&] { add_loss("z", row); };
  const std::string line = "summaries_test.cc:" + std::to_string(__LINE__ - 1);
  refused(add_row, "the auxiliary loss 'z' is f32[\"experts\"], expected an f32 scalar; reduce it");
  refused(add_row, line);
  refused([&] { add_loss("z", narrow); }, "expected an f32 scalar; cast it");
  refused([&] { add_metric("load", {square, x}); }, "expected f32 with at most one axis");
  refused([&] { add_metric("load", {narrow, x}); }, "the sum of metric 'load' is bf16");
  refused(
      [&] {
        add_metric("load", {x, row});
      },
      "the weight of metric 'load' is f32[\"experts\"], expected an f32 scalar");
  refused([&] { add_loss("Load balance", x); }, "'Load balance' is not a name");
  refused([&] { add_loss("", x); }, "'' is not a name");
  for (const std::string taken : {"loss", "step", "aux_loss", "macro_load", "perplexity"})
    refused([&] { add_metric(taken, {x, x}); }, "cannot be called '" + taken + "'");
  add_loss("balance", x);
  refused([&] { add_metric("balance", {x, x}); }, "adds 'balance' twice");
  const PathScope inner("inner");
  refused(
      [&] {
        add_metric("balance", {row, x});
      },
      "'balance' has one value in one layer, and an axis in another");
}

TEST_CASE("names of a model's own metrics are not available to layers") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"experts=4\"]", {1, 2, 3, 4});
  const SummaryScope summaries;
  add_metric("load", {x, x});
  summaries.check_names({{"log_pplx", {}}});
  REQUIRE_THAT(error_of([&] {
                 summaries.check_names({{"load_max", {}}});
               }),
               Contains("two metrics are reported as 'load_max', one of them 'load' of a layer"));
  REQUIRE_THAT(error_of([&] {
                 summaries.check_names({{"top.5", {}}});
               }),
               Contains("the model has a metric 'top.5'; expected a name without '.' and '/'"));
}

}  // namespace
}  // namespace tessera
