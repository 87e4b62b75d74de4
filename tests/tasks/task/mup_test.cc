// SPDX-License-Identifier: Apache-2.0
// The maximal update parametrization: factors against Microsoft's package mup, the steps of the
// learner, what is refused, and that activations and the best learning rate stay where they are in
// wider models.
#include "tasks/task/mup.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "inputs/synthetic_input.h"
#include "layers/attention/latent_attention.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/models/language_model.h"
#include "tasks/recipes/transformer_lm_recipe.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"
#include "tests/support/train_trial.h"

namespace tessera {
namespace {

constexpr int64_t kHeadDim = 4;

using MupBase = std::map<std::string, int64_t>;

struct LmSizes {
  int64_t embed = 0, heads = 0, mlp = 0;
  MupBase axes() const {
    return {{"embed", embed}, {"heads", heads}, {"kv_heads", heads}, {"mlp", mlp}};
  }
};

// With biases and an untied softmax.
SingleTask::HParams lm_task(const LmSizes& sizes, int64_t vocab = 11, double deviation = 0.02) {
  const DotProductAttention::HParams attention{.dims_per_head = kHeadDim, .use_bias = true};
  const TransformerBlock::HParams block{.attention_tpl = attention,
                                        .ffn_tpl = FeedForward::HParams{.use_bias = true}};
  return {.model = LanguageModel::HParams{
              .lm_tpl = TransformerLm::HParams{
                  .vocab_size = vocab,
                  .model_dims = sizes.embed,
                  .num_layers = 1,
                  .num_heads = sizes.heads,
                  .hidden_dims = sizes.mlp,
                  .separate_embedding_tpl = Embedding::HParams{},
                  .softmax_tpl = FullSoftmax::HParams{},
                  .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
                  .params_init = WeightInit{InitKind::kGaussian, deviation}}}};
}

TransformerLm::HParams& lm_of(SingleTask::HParams& p) {
  return p.model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
}

const Parameter& parameter_at(const BaseTask& task, std::string_view path) {
  const Parameter* const found = task.model().parameters().find(path);
  CAPTURE(path);
  REQUIRE(found != nullptr);
  return *found;
}

// The weights of tests/golden/widths.py.
const std::map<std::string, std::string> kPaths = {
    {"table.weight", "lm.embedding.w"},
    {"query.weight", "lm.transformer.x_layers[0].attention.query"},
    {"query.bias", "lm.transformer.x_layers[0].attention.query_bias"},
    {"output.weight", "lm.transformer.x_layers[0].attention.output"},
    {"scale.weight", "lm.transformer.x_layers[0].ffn_norm.scale"},
    {"up.weight", "lm.transformer.x_layers[0].ffn.up"},
    {"up.bias", "lm.transformer.x_layers[0].ffn.up_bias"},
    {"down.weight", "lm.transformer.x_layers[0].ffn.down"},
    {"logits.weight", "lm.softmax.w"}};

// Compares a line of the golden file.
void compare_weight(std::istream& file, const std::string& name, const BaseTask& task, double rate,
                    double decay) {
  const Parameter& weight = parameter_at(task, kPaths.at(name));
  double expected = 0;
  file >> expected;
  if (name.ends_with(".weight") && name != "scale.weight")
    REQUIRE(draw_of(weight).factor == Approx(expected));
  const AdamW adam({});
  const Sgd sgd({});
  for (const BaseOptimizer* optimizer : std::vector<const BaseOptimizer*>{&adam, &sgd}) {
    const double factor = optimizer->width_factor(weight);
    file >> expected;
    REQUIRE(rate * factor == Approx(expected));
    file >> expected;
    REQUIRE(decay / factor == Approx(expected));
  }
}

TEST_CASE("initial deviations, learning rates and decays are those of the package mup") {
  std::ifstream file(fmt::format("{}/tests/golden/widths.txt", TESSERA_SOURCE_DIR));
  std::string word, name;
  double deviation = 0, rate = 0, decay = 0;
  int64_t vocab = 0, compared = 0;
  std::optional<SingleTask> task;
  while (file >> word) {
    CAPTURE(name, word);
    if (word == "settings") {
      file >> deviation >> rate >> decay >> vocab;
    } else if (word == "case") {
      LmSizes sizes, base;
      file >> name;
      for (LmSizes* each : {&sizes, &base}) {
        file >> each->embed >> each->heads >> each->mlp;
        each->heads /= kHeadDim;
      }
      SingleTask::HParams p = lm_task(sizes, vocab, deviation);
      p.mup_base = base.axes();
      task.emplace(p);
    } else {
      compare_weight(file, word, *task, rate, decay);
      ++compared;
    }
  }
  REQUIRE(compared == 3 * std::ssize(kPaths));
}

TEST_CASE("without mup_base, and with the model's own sizes, nothing changes") {
  const LmSizes sizes{32, 8, 48};
  SingleTask::HParams p = lm_task(sizes);
  const SingleTask standard(p);
  p.mup_base = sizes.axes();
  const SingleTask base(p);
  for (const Parameter& weight : standard.model().parameters().parameters()) {
    const Parameter& other = parameter_at(base, weight.path);
    REQUIRE(draw_of(other).factor == draw_of(weight).factor);
    REQUIRE(AdamW({}).width_factor(other) == 1.0);
    const Muon muon({});
    REQUIRE(muon.for_parameter(other).width_factor(other) == 1.0);
  }
  REQUIRE(standard.learner().widths_text(standard.model().parameters()).empty());
  REQUIRE_THAT(base.learner().widths_text(base.model().parameters()),
               Catch::Contains("lm.softmax.w f32[\"embed=32 vocab=11\"]"));
}

// A weight with a fan-in 4 and a fan-out 2 times that of the base.
Parameter wide_weight(InitKind kind, std::vector<Axis> axes, FanAxes fans = {}) {
  Parameter weight{.path = "w", .type = make_type(DType::kF32, std::move(axes))};
  weight.init = {kind, 0.5};
  weight.fans = std::move(fans);
  weight.widths = {{"embed", 4.0}, {"mlp", 2.0}};
  return weight;
}

TEST_CASE("initial values are those of the base model's sizes, whatever the initialiser") {
  const std::vector<Axis> hidden = {{"embed", 32}, {"mlp", 24}};
  const auto factor = [&](InitKind kind) { return draw_of(wide_weight(kind, hidden)).factor; };
  REQUIRE(factor(InitKind::kGaussian) == Approx(0.5 / 2));
  REQUIRE(factor(InitKind::kGaussianSqrtFanIn) == Approx(0.5 / std::sqrt(8.0) / 2));
  REQUIRE(factor(InitKind::kGaussianSqrtFanOut) == Approx(0.5 / std::sqrt(12.0) / 2));
  REQUIRE(factor(InitKind::kXavier) == Approx(0.5 * std::sqrt(3.0 / 10) / 2));
  REQUIRE(factor(InitKind::kConstant) == 0.5);
  // Its elements are 1/√32 by themselves; in the base 1/√12.
  REQUIRE(factor(InitKind::kScaledDeltaOrthogonal) == Approx(0.5 * std::sqrt(32.0 / 12) / 2));
  // A weight that starts at zero is no vector if its layer declares its axes.
  REQUIRE(width_ratios(wide_weight(InitKind::kConstant, hidden, {{"embed"}, {"mlp"}})).in == 4.0);
  REQUIRE(width_ratios(wide_weight(InitKind::kConstant, hidden)).in == 1.0);
}

TEST_CASE("experts and stacks have the fans of one matrix") {
  MoeFeedForward::HParams experts;
  experts.num_experts = 4;
  SingleTask::HParams p = lm_task({32, 8, 48});
  lm_of(p).stacked_transformer_tpl =
      Repeated::HParams{.block_tpl = TransformerBlock::HParams{.ffn_tpl = experts}};
  p.mup_base = LmSizes{16, 4, 12}.axes();
  const SingleTask task(p);
  const std::string block = "lm.transformer.x_layers[].";
  const auto ratios = [&](const std::string& path) {
    return width_ratios(parameter_at(task, block + path));
  };
  REQUIRE(ratios("ffn.up").in == 2.0);
  REQUIRE(ratios("ffn.up").out == 4.0);
  REQUIRE(ratios("ffn.down").in == 4.0);
  REQUIRE(ratios("ffn.router.w").in == 2.0);
  REQUIRE(ratios("ffn.router.w").initial == 0.5);
  REQUIRE(ratios("attention.query").initial == Approx(1 / std::sqrt(2.0)));
}

// The spectral norm of an update of Muon: its factor of the learning rate times its scale.
TEST_CASE("an update of Muon has a spectral norm in proportion to √(out/in)") {
  const Parameter weight = wide_weight(InitKind::kGaussian, {{"embed", 32}, {"mlp", 12}});
  const double base = std::sqrt(6.0 / 8), wide = std::sqrt(12.0 / 32);
  const auto factor = [&](MuonScale scale) { return Muon({.scale = scale}).width_factor(weight); };
  // Scales: √max(1, out/in) is 1 for both; 0.2·√max(out, in) is 0.2·√32 and 0.2·√8.
  REQUIRE(factor(MuonScale::kOriginal) == Approx(wide / base));
  REQUIRE(factor(MuonScale::kMatchRmsAdamw) * std::sqrt(32.0) / std::sqrt(8.0) ==
          Approx(wide / base));
  Parameter query = wide_weight(InitKind::kGaussian, {{"embed", 32}, {"heads", 4}, {"head_dim", 8}},
                                {{"embed"}, {"heads", "head_dim"}});
  query.widths["heads"] = 4.0;
  // Whole, and each head by itself.
  REQUIRE(Muon({.scale = MuonScale::kOriginal}).width_factor(query) == Approx(1.0));
  REQUIRE(Muon({.scale = MuonScale::kOriginal, .block_axes = {"heads"}}).width_factor(query) ==
          Approx(0.5));
}

// Scales are √√(32·12) and √√(8·6), and with statistics of one side √32 and √√(8·6).
TEST_CASE("an update of Shampoo has a spectral norm in proportion to √(out/in)") {
  const Parameter weight = wide_weight(InitKind::kGaussian, {{"embed", 32}, {"mlp", 12}});
  const double ratio = std::sqrt(12.0 / 32) / std::sqrt(6.0 / 8);
  REQUIRE(Shampoo({.scale = ShampooScale::kOriginal}).width_factor(weight) == Approx(ratio));
  REQUIRE(Shampoo(Shampoo::HParams{}).width_factor(weight) ==
          Approx(ratio * std::pow(8.0 * 6 / (32 * 12), 0.25)));
  REQUIRE(Shampoo({.max_precondition_dims = 12}).width_factor(weight) ==
          Approx(ratio * std::pow(8.0 * 6, 0.25) / std::sqrt(32.0)));
}

TEST_CASE("the learner steps by the factors, and decays as in the base model") {
  SingleTask::HParams p = linear_task();
  p.learner.optimizer_tpl = Sgd::HParams{.learning_rate = 0.1, .weight_decay = 0.5};
  p.learner.learning_rate_rules = {{{"bias"}, 0.5}};
  p.mup_base = {{"embed", 1}, {"mlp", 1}};  // They are 3 and 2.
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  trial.step(some_examples(8));
  const LinearStep expected = linear_step(some_examples(8), before);
  const auto require_step = [](const std::vector<double>& got, const std::vector<double>& from,
                               const std::vector<double>& gradient, double rate, double decay) {
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(got[i] == Approx(from[i] - rate * gradient[i] - decay * from[i]).margin(3e-6));
  };
  require_step(trial.read("matrix"), before.matrix, expected.gradient.matrix, 0.1 * 2 / 3,
               0.1 * 0.5);
  require_step(trial.read("bias"), before.bias, expected.gradient.bias, 0.1 * 2 * 0.5,
               0.1 * 0.5 * 0.5);
}

// The error for a model whose embedding is 4 times as wide as in the base model.
template <typename Change>
std::string error_with(const Change& change) {
  SingleTask::HParams p = lm_task({32, 8, 48});
  p.mup_base = {{"embed", 8}};
  change(p);
  return error_of([&] { SingleTask{p}; });
}

TEST_CASE("tables with the factors of the standard parametrization are refused") {
  REQUIRE(error_with([](auto&) {}) == "no error");
  const auto tied = [](SingleTask::HParams& p, double multiplier) {
    lm_of(p).separate_embedding_tpl = {};
    lm_of(p).softmax_tpl = SharedEmbeddingSoftmax::HParams{.loss = {.multiplier = multiplier}};
  };
  REQUIRE_THAT(error_with([&](auto& p) { tied(p, 1.0); }),
               Catch::Contains("set task.model.lm_tpl.softmax_tpl.loss.multiplier=0.25"));
  REQUIRE(error_with([&](auto& p) { tied(p, 0.25); }) == "no error");
  REQUIRE_THAT(error_with([](auto& p) {
                 lm_of(p).separate_embedding_tpl = Embedding::HParams{.scale_sqrt_depth = true};
               }),
               Catch::Contains("set task.model.lm_tpl.separate_embedding_tpl.multiplier=0.5"));
}

TEST_CASE("attention with wider heads and the standard scale is refused") {
  const auto with = [](const Template<SequenceLayer>& attention_tpl, int64_t base) {
    return error_with([&](auto& p) {
      lm_of(p).stacked_transformer_tpl = StackedTransformer::HParams{
          .block_tpl = TransformerBlock::HParams{.attention_tpl = attention_tpl}};
      p.mup_base = {{"head_dim", base}};
    });
  };
  // 1/√1 at the base, divided by 4.
  DotProductAttention::HParams attention{.dims_per_head = 4};
  REQUIRE_THAT(with(attention, 1), Catch::Contains("attention_tpl.query_scale=0.25"));
  attention.use_per_dim_scale = true;
  REQUIRE_THAT(with(attention, 1), Catch::Contains("attention_tpl.use_per_dim_scale=false, and"));
  attention.use_per_dim_scale = false;
  attention.query_scale = 0.25;
  REQUIRE(with(attention, 1) == "no error");
  // 1/√(2 + 2), divided by 2.
  const LatentAttention::HParams latent{.kv_lora_rank = 8,
                                        .dims_per_head = 4,
                                        .rope_dims = 2,
                                        .rotary_tpl = RotaryPositionEmbedding::HParams{}};
  REQUIRE_THAT(with(latent, 2), Catch::Contains("attention_tpl.query_scale=0.25"));
}

TEST_CASE("axes that no weight has and optimizers without a rule are refused") {
  REQUIRE_THAT(error_with([](auto& p) { p.mup_base["embedd"] = 8; }),
               Catch::Contains("mup_base: no weight has an axis 'embedd'; the model's have ") &&
                   Catch::Contains("did you mean 'embed'?"));
  const auto with = [](const Template<BaseOptimizer>& optimizer_tpl) {
    return error_with([&](auto& p) { p.learner.optimizer_tpl = optimizer_tpl; });
  };
  REQUIRE_THAT(with(Lamb::HParams{}), Catch::Contains("mup_base: muP has no rule for Lamb"));
  REQUIRE_THAT(with(Adafactor::HParams{}),
               Catch::Contains("set multiply_by_parameter_scale=false"));
  REQUIRE(with(Adafactor::HParams{.multiply_by_parameter_scale = false}) == "no error");
}

TEST_CASE("the knob of recipes sets the base model's sizes and the factors of the table") {
  TransformerLmAdamRecipe recipe;
  recipe.global_batch_size = 8;
  recipe.model_dims = 256;
  recipe.num_heads = 8;
  recipe.mup_base_dims = 64;
  auto task = recipe.build().task.as<SingleTask::HParams>();
  REQUIRE(task.mup_base == MupBase{{"embed", 64}, {"heads", 2}, {"mlp", 256}});
  const auto table = lm_of(task).softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
  REQUIRE(table.loss.multiplier == 0.25);
  REQUIRE(table.multiplier == 0.5);  // Rows are times √256, as if times √64.
  REQUIRE(table.layer.init() == WeightInit{InitKind::kGaussian, 0.125});
  const SingleTask made(task);
  REQUIRE(draw_of(parameter_at(made, "lm.softmax.w")).factor == 0.125);
  recipe.mup_base_dims = 48;
  REQUIRE_THAT(error_of([&] { recipe.build(); }),
               Catch::Contains("mup_base_dims=48: at model_dims=256 the size of heads is 8"));
}

enum class Parametrization { kStandard, kMup };

constexpr int64_t kBaseWidth = 64;

// A language model with tied logits, proportions of which do not depend on the width.
SingleTask::HParams wide_task(int64_t width, Parametrization parametrization,
                              const Template<BaseOptimizer>& optimizer_tpl) {
  const DotProductAttention::HParams attention{.dims_per_head = 16};
  const TransformerBlock::HParams block{.attention_tpl = attention, .norm_tpl = RmsNorm::HParams{}};
  SingleTask::HParams p{
      .model = LanguageModel::HParams{
          .lm_tpl = TransformerLm::HParams{
              .vocab_size = 24,
              .model_dims = width,
              .num_layers = 1,
              .num_heads = width / 16,
              .hidden_dims = 2 * width,
              .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
              .final_ln_tpl = RmsNorm::HParams{},
              .params_init = WeightInit{InitKind::kGaussian, 0.05}}}};
  p.learner.optimizer_tpl = optimizer_tpl;
  p.train.activations = true;
  if (parametrization == Parametrization::kMup) p.mup_base = use_mup(p.model, width, kBaseWidth);
  return p;
}

// What one step after the other reports, the first before any update.
std::vector<StepResult> steps_of(const SingleTask::HParams& p, int64_t count) {
  const SingleTask task(p);
  const auto input = Template<BaseInput>(SyntheticInput::HParams{.task = SyntheticTask::kCopy,
                                                                 .global_batch_size = 8,
                                                                 .seq_len = 16,
                                                                 .num_letters = 8,
                                                                 .distance = 2})
                         .instantiate();
  input->attach({});
  const Mesh mesh = Mesh::standard({1, 1, 1});
  TrainTrial trial(task, task.train_graph({mesh, make_rules({}), global_specification(*input)}),
                   {.mesh = mesh, .verify_passes = false});
  std::vector<StepResult> results;
  for (int64_t step = 0; step < count; ++step)
    results.push_back(trial.step(*input->get_next(), step));
  return results;
}

// The RMS of activations at each step, relative to those of the base model at the same step.
std::vector<std::map<std::string, double>> growth_of(int64_t width, int64_t updates,
                                                     Parametrization parametrization,
                                                     const Template<BaseOptimizer>& optimizer_tpl) {
  const auto steps = [&](int64_t at) {
    return steps_of(wide_task(at, parametrization, optimizer_tpl), updates + 1);
  };
  const std::vector<StepResult> base = steps(kBaseWidth), wide = steps(width);
  std::vector<std::map<std::string, double>> growth(base.size());
  for (size_t i = 0; i < base.size(); ++i)
    for (const std::string activation : {"attention", "ffn", "logits"}) {
      const std::string metric = activation + "_mean_square";
      growth[i][activation] = std::sqrt(wide[i].metrics.at(metric) / base[i].metrics.at(metric));
    }
  return growth;
}

// After 1, 2 and 4 updates. (Before the first, tied logits are 1/√r as large.)
void require_flat(int64_t width, const Template<BaseOptimizer>& optimizer_tpl) {
  constexpr double kFlat = 1.8;
  const auto growth = growth_of(width, 4, Parametrization::kMup, optimizer_tpl);
  for (const size_t updates : {1, 2, 4})
    for (const auto& [activation, factor] : growth[updates]) {
      CAPTURE(width, optimizer_tpl.name(), updates, activation);
      REQUIRE(factor < kFlat);
      REQUIRE(factor > 1.0 / kFlat);
    }
}

TEST_CASE("a coordinate check is flat with muP, and grows without") {
  const AdamW::HParams adam{.learning_rate = 1e-2};
  require_flat(256, adam);
  const auto growth = growth_of(256, 4, Parametrization::kStandard, adam).back();
  REQUIRE(growth.at("attention") > 4.0);
  REQUIRE(growth.at("ffn") > 4.0);
  REQUIRE(growth.at("logits") > 2.0);
}

TEST_CASE("coordinate checks are flat with each optimizer and width", "[full]") {
  const std::vector<Template<BaseOptimizer>> optimizers = {
      AdamW::HParams{.learning_rate = 1e-2},
      Sgd::HParams{.learning_rate = 0.1},
      Lion::HParams{.learning_rate = 3e-3},
      Adafactor::HParams{.learning_rate = 1e-2, .multiply_by_parameter_scale = false},
      Muon::HParams{.learning_rate = 1e-2},
      Muon::HParams{.learning_rate = 2e-2, .scale = MuonScale::kOriginal},
      Muon::HParams{.learning_rate = 1e-2, .block_axes = {"heads", "kv_heads"}},
      Shampoo::HParams{.learning_rate = 1e-2, .root_interval = 1},
      Shampoo::HParams{.learning_rate = 2e-2,
                       .momentum = 0.0,
                       .root_interval = 1,
                       .scale = ShampooScale::kOriginal}};
  for (const auto& optimizer_tpl : optimizers)
    for (const int64_t width : {128, 256, 512}) require_flat(width, optimizer_tpl);
}

// The rate, of a sequence with the ratio 2, with the lowest loss early in training.
double best_rate(int64_t width, Parametrization parametrization) {
  constexpr size_t kFirst = 10, kEnd = 20;
  double least = std::numeric_limits<double>::infinity(), best = 0.0;
  for (double rate = 1e-3; rate < 0.1; rate *= 2.0) {
    const AdamW::HParams adam{
        .learning_rate = rate,
        .schedule_tpl = LinearRampupLinearDecay::HParams{.warmup_steps = 10, .decay_end = 60}};
    const auto steps = steps_of(wide_task(width, parametrization, adam), kEnd);
    double loss = 0.0;
    for (size_t i = kFirst; i < kEnd; ++i) loss += steps[i].loss;
    if (loss >= least) continue;
    least = loss;
    best = rate;
  }
  return best;
}

TEST_CASE("the best learning rate stays in wider models with muP, and falls without", "[full]") {
  const double tuned = best_rate(kBaseWidth, Parametrization::kStandard);
  double standard = tuned;
  for (const int64_t width : {128, 256, 512}) {
    CAPTURE(width);
    REQUIRE(best_rate(width, Parametrization::kMup) == tuned);
    const double lower = best_rate(width, Parametrization::kStandard);
    REQUIRE(lower < standard);
    standard = lower;
  }
  REQUIRE(standard <= tuned / 8.0);
}

}  // namespace
}  // namespace tessera
