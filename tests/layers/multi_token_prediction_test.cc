// SPDX-License-Identifier: Apache-2.0
// MultiTokenPrediction against a plain implementation, on one device and on meshes, its gradients
// against finite differences, and that only training has its losses.
#include "layers/models/multi_token_prediction.h"

#include <cmath>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tasks/task/config/experiment.h"
#include "tasks/testing/tested_layer.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/model_outputs.h"
#include "tests/support/reference_models.h"
#include "tests/support/trial.h"

namespace tessera {

// A block that adds 0.1·segment + 0.01·position, so that a wrong one is noticed.
class PlaceBlock final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = PlaceBlock;
    Required<int64_t> model_dims;
    FIELDS(model_dims)
  };
  explicit PlaceBlock(const HParams& p)
      : scale_(weight("scale", {{"embed", p.model_dims.get()}}, ones())) {}

 private:
  Tensor fprop(Tensor x, const SequenceInfo& sequence) const override {
    const auto added = [&](const Tensor& numbers, double factor) {
      Type type = x.type();
      type.axes.pop_back();
      type.dtype = DType::kI32;
      const Tensor values = cast(reshard(numbers, type), DType::kF32) * factor;
      return broadcast(values, {x.type().axes[2]}, "batch seq embed");
    };
    const Tensor y = x * param_like(scale_, x);
    return y + added(sequence.segment_ids, 0.1) + added(sequence.positions, 0.01);
  }

  Weight scale_;
};

const TemplateRegistrar<SequenceLayer, PlaceBlock> kRegister;

namespace {

using Catch::Contains;
using Values = std::vector<double>;

constexpr size_t kRows = 2, kTokens = 6, kWidth = 4, kVocab = 5, kAll = kRows * kTokens;
constexpr double kLossWeight = 0.3;

const Values kSegments = {1, 1, 1, 1, 2, 2, 1, 1, 1, 3, 0, 0};
const Values kPositions = {0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 0, 1};
const Values kLabels = {4, 0, 2, 1, 3, 3, 1, 2, 0, 4, 2, 1};
const Values kWeights = {1, 0.5, 1, 2, 1, 1, 1, 0.25, 1, 1, 1, 1};

MultiTokenPrediction::HParams hparams(int64_t num_tokens) {
  return {.model_dims = kWidth,
          .num_tokens = num_tokens,
          .loss_weight = kLossWeight,
          .block_tpl = PlaceBlock::HParams{}};
}

// Different values for every weight, for x and for the table of the embedding and the softmax.
ReferenceInputs numbers(const MultiTokenPrediction::HParams& p) {
  return distinct_values(Template<MultiTokenPrediction>(p).instantiate()->parameters(),
                         {{"x", kAll * kWidth}, {"table", kVocab * kWidth}});
}

// One module of the plain implementation; all values are row-major.
class PlainModule {
 public:
  PlainModule(const ReferenceInputs& in, size_t k) : in_(in), k_(k) {}

  // Replaces h by the module's hidden states.
  void advance(Values* h) const {
    const Values hidden = normed("hidden_norm", *h), token = normed("token_norm", embedded());
    Values next(kAll * kWidth);
    for (size_t t = 0; t < kAll; ++t)
      for (size_t d = 0; d < kWidth; ++d) {
        double sum = 0.0;
        for (size_t e = 0; e < kWidth; ++e)
          sum += hidden[t * kWidth + e] * at("hidden", e * kWidth + d) +
                 token[t * kWidth + e] * at("token", e * kWidth + d);
        next[t * kWidth + d] =
            sum * at("block.scale", d) + 0.1 * kSegments[t] + 0.01 * kPositions[t];
      }
    *h = next;
  }

  // The sum of the weighted losses, and of their weights.
  std::pair<double, double> loss(const Values& h) const {
    const Values x = normed("final_norm", h);
    double sum = 0.0, weight = 0.0;
    for (size_t t = 0; t < kAll; ++t) {
      const size_t label = t + k_;
      if (t % kTokens + k_ >= kTokens || kSegments[t] == 0 || kSegments[t] != kSegments[label])
        continue;
      Values scores(kVocab);
      double total = 0.0;
      for (size_t v = 0; v < kVocab; ++v) {
        for (size_t e = 0; e < kWidth; ++e)
          scores[v] += x[t * kWidth + e] * in_.at("table")[v * kWidth + e];
        total += std::exp(scores[v]);
      }
      sum += kWeights[label] * (std::log(total) - scores[static_cast<size_t>(kLabels[label])]);
      weight += kWeights[label];
    }
    return {sum, weight};
  }

 private:
  double at(const std::string& name, size_t i) const {
    return in_.at(fmt::format("module{}_{}", k_, name))[i];
  }

  Values embedded() const {
    Values y;
    for (size_t t = 0; t < kAll; ++t) {
      const bool is_inside = t % kTokens + k_ - 1 < kTokens;
      const auto id = static_cast<size_t>(is_inside ? kLabels[t + k_ - 1] : 0);
      for (size_t e = 0; e < kWidth; ++e) y.push_back(in_.at("table")[id * kWidth + e]);
    }
    return y;
  }

  Values normed(const std::string& name, const Values& x) const {
    Values y(x.size());
    for (size_t t = 0; t < kAll; ++t) {
      double square = 0.0;
      for (size_t e = 0; e < kWidth; ++e) square += x[t * kWidth + e] * x[t * kWidth + e] / kWidth;
      for (size_t e = 0; e < kWidth; ++e)
        y[t * kWidth + e] = x[t * kWidth + e] / std::sqrt(square + 1e-6) * at(name + ".scale", e);
    }
    return y;
  }

  const ReferenceInputs& in_;
  size_t k_;
};

TestedLayer tested(int64_t num_tokens, LayerSetting setting = {}) {
  setting.values = numbers(hparams(num_tokens));
  setting.values["labels"] = kLabels;
  setting.values["weights"] = kWeights;
  setting.values["segment_ids"] = kSegments;
  setting.values["positions"] = kPositions;
  const std::string ids = "i32[\"batch=2 seq=6\"]";
  return TestedLayer(
      Template<MultiTokenPrediction>(hparams(num_tokens)),
      {{"x", "f32[\"batch=2 seq=6 embed=4\"]"},
       {"table", "f32[\"vocab=5 embed=4\"]"},
       {"weights", "f32[\"batch=2 seq=6\"]"},
       {"labels", ids},
       {"segment_ids", ids},
       {"positions", ids}},
      [](const MultiTokenPrediction& layer, const NamedTensors& in) {
        const Tensor table = in.at("table");
        const PredictedTokens tokens{
            .labels = in.at("labels"),
            .weights = in.at("weights"),
            .segment_ids = in.at("segment_ids"),
            .embed =
                [&](const Tensor& of) { return place(gather(table, of, "vocab"), "residual"); },
            .loss =
                [&](const Tensor& x, const Tensor& labels) {
                  return cross_entropy(einsum(place(x), table, over("embed")), labels, "vocab");
                }};
        const SequenceInfo sequence{.segment_ids = tokens.segment_ids,
                                    .positions = in.at("positions")};
        return reduced(layer(in.at("x"), sequence, tokens));
      },
      setting);
}

std::vector<LayerSetting> meshes() {
  const MeshConfig four{.ici_mesh_shape = {1, 2, 2}};
  return {{.mesh = four,
           .rules = {.weights = "embed -> data, mlp -> mdl",
                     .activations = "residual: seq -> mdl, batch -> data, mlp -> mdl"}},
          {.mesh = four, .rules = {.activations = "batch -> data, seq -> mdl"}}};
}

TEST_CASE("further tokens are predicted as by a plain implementation, on one device and on four") {
  for (const int64_t count : {1, 3}) {
    const ReferenceInputs values = numbers(hparams(count));
    Values h = values.at("x");
    double expected = 0.0, weight = 0.0;
    for (const double each : kWeights) weight += each;
    std::map<std::string, Values> metrics;
    for (int64_t k = 1; k <= count; ++k) {
      const PlainModule module(values, static_cast<size_t>(k));
      module.advance(&h);
      const auto [sum, labels] = module.loss(h);
      expected += kLossWeight / static_cast<double>(count) * sum / weight;
      metrics[fmt::format("mtp_log_pplx_{}", k)] = {sum / labels};
    }
    std::vector<LayerSetting> settings = meshes();
    settings.push_back({});
    for (const LayerSetting& setting : settings) {
      INFO(count << " tokens, activations: " << setting.rules.activations);
      const TestedLayer layer = tested(count, setting);
      require_close(layer.result(), {expected}, 1e-12);
      const auto got = layer.metrics();
      REQUIRE(got.size() == metrics.size());
      for (const auto& [name, value] : metrics) require_close(got.at(name), value, 1e-12);
    }
  }
}

TEST_CASE("gradients of further tokens are those of finite differences, also on a mesh") {
  tested(3).check_gradients();
  for (const LayerSetting& setting : meshes()) {
    INFO("activations: " << setting.rules.activations);
    tested(2, setting).check_gradients();
  }
}

TEST_CASE("a row of as many tokens as modules has none for the last") {
  REQUIRE_THAT(error_of([] { tested(6).result(); }),
               Contains("num_tokens=6 needs sequences of more tokens, but a row has 6"));
}

TEST_CASE("evaluation neither computes nor reports further tokens") {
  const NamedValues trained = model_outputs(small_mtp(), "save_everything", Mode::kTrain);
  const NamedValues evaluated = model_outputs(small_mtp(), "save_everything", Mode::kEval);
  LanguageModel::HParams without = small_mtp();
  without.lm_tpl.as<TransformerLm::HParams>().mtp_tpl = {};
  const NamedValues plain = model_outputs(without, "save_everything", Mode::kEval);
  REQUIRE(trained.contains("sum/lm.mtp.mtp_log_pplx_2"));
  REQUIRE(trained.contains("sum/lm.mtp_loss"));
  REQUIRE(trained.at("loss")[0] > evaluated.at("loss")[0] + 0.1);
  for (const auto& [name, values] : evaluated) {
    INFO(name);
    if (name.find(".mtp.") == name.npos) REQUIRE(plain.at(name) == values);
  }
}

}  // namespace
}  // namespace tessera
