// SPDX-License-Identifier: Apache-2.0
// Tests inspect(): its numbers equal plain arithmetic on every mesh, and it has no effect unless
// requested.
#include "layers/inspect.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/compile/simplify.h"
#include "core/graph/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/language_model.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;

// Inspects x, x where it is positive, its logarithms, and its only sum.
class Looking final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Looking;
    static constexpr std::string_view kName = "Looking";
    std::string also = "";
    FIELDS(also)
  };
  explicit Looking(const HParams& p) : p_(p) {}

 private:
  Tensor fprop(Tensor x) const override {
    inspect(x, "plain");
    inspect(relu(x), "positive");
    inspect(log(x), "logs");
    inspect(reduce_sum(x), "sum");
    if (p_.also == "twice") inspect(x, "plain");
    if (p_.also == "bool") inspect(less(x, constant(0.0, x.dtype())), "negative");
    if (p_.also == "name") inspect(x, "Plain values");
    return x;
  }

  HParams p_;
};

class LookingModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = LookingModel;
    static constexpr std::string_view kName = "LookingModel";
    Field<DTypePolicy> dtypes;
    std::string also = "";
    bool looks = true;
    FIELDS(dtypes, also, looks)
  };
  explicit LookingModel(const HParams& p)
      : BaseModel({.dtypes = p.dtypes}),
        p_(p),
        matrix_(weight("matrix",
                       {{"embed", LinearModel::kInputs, {}}, {"mlp", LinearModel::kOutputs, {}}},
                       {InitKind::kGaussian, 1.0})),
        look_(child<UnaryLayer>("look", Looking::HParams{.also = p.also})) {}

 private:
  Tensor fprop_logits(const Features& features) const override {
    const Tensor y = einsum(features.get("x"), param(matrix_), over("embed")) * 3.0 + 5.0;
    return p_.looks ? look_(y) : y;
  }
  ModelOutput fprop(const Features& features) const override {
    const Tensor weights = features.get("weights");
    const Tensor errors = reduce_sum(square(features.get("y") - fprop_logits(features)), "mlp");
    return {{reduce_sum(errors * weights), reduce_sum(weights)}, {}};
  }

  HParams p_;
  Weight matrix_;
  ChildLayer<UnaryLayer> look_;
};

SingleTask::HParams looking_task(const LookingModel::HParams& model, int64_t microbatches = 1) {
  SingleTask::HParams p = linear_task();
  p.model = model;
  p.train.num_microbatches = microbatches;
  return p;
}

Inspected plain_reference(const std::string& name, const std::vector<double>& values) {
  Inspected expected{.name = name, .least = HUGE_VAL, .greatest = -HUGE_VAL};
  double finite = 0;
  for (const double value : values) {
    expected.zeros += value == 0.0 ? 1.0 : 0.0;
    if (!std::isfinite(value)) continue;
    ++finite;
    expected.mean += value;
    expected.least = std::min(expected.least, value);
    expected.greatest = std::max(expected.greatest, value);
  }
  expected.mean /= finite;
  for (const double value : values)
    if (std::isfinite(value)) expected.deviation += std::pow(value - expected.mean, 2);
  expected.deviation = std::sqrt(expected.deviation / finite);
  expected.zeros /= static_cast<double>(values.size());
  expected.nonfinite = 1.0 - finite / static_cast<double>(values.size());
  return expected;
}

void require_equal(const Inspected& got, const Inspected& expected, double tolerance) {
  INFO(text_of(got) << "\nexpected " << text_of(expected));
  REQUIRE(got.name == expected.name);
  const auto near = [tolerance](double value) {
    return Approx(value).epsilon(tolerance).margin(tolerance);
  };
  REQUIRE(got.mean == near(expected.mean));
  REQUIRE(got.deviation == near(expected.deviation));
  REQUIRE(got.least == near(expected.least));
  REQUIRE(got.greatest == near(expected.greatest));
  REQUIRE(got.zeros == near(expected.zeros));
  REQUIRE(got.nonfinite == near(expected.nonfinite));
}

TEST_CASE("what is inspected has the numbers of plain arithmetic, over all microbatches") {
  const InspectScope inspecting;
  for (const int64_t microbatches : {1, 2, 4}) {
    INFO(microbatches << " microbatches");
    LinearTrial trial(looking_task({}, microbatches), 8);
    const std::vector<double> matrix = trial.read("matrix");
    const LinearExamples examples = some_examples(8);
    const StepResult result = trial.step(examples);
    constexpr size_t in = LinearModel::kInputs, out = LinearModel::kOutputs;
    std::vector<double> plain, positive, logs;
    for (size_t e = 0; e < 8; ++e)
      for (size_t o = 0; o < out; ++o) {
        double sum = 0;
        for (size_t i = 0; i < in; ++i) sum += examples.x[e * in + i] * matrix[i * out + o];
        plain.push_back(3.0 * sum + 5.0);
        positive.push_back(std::max(plain.back(), 0.0));
        logs.push_back(std::log(plain.back()));
      }
    REQUIRE(std::ranges::min(plain) < 0.0);  // There are zeros and NaNs,
    REQUIRE(std::ranges::max(plain) > 0.0);  // and other values.
    std::map<std::string, Inspected> got;
    for (const Inspected& each : result.inspected) got[each.name] = each;
    REQUIRE(got.size() == 4);
    require_equal(got["look.plain"], plain_reference("look.plain", plain), 1e-5);
    require_equal(got["look.positive"], plain_reference("look.positive", positive), 1e-5);
    require_equal(got["look.logs"], plain_reference("look.logs", logs), 1e-5);
    REQUIRE(got["look.plain"].type == "f32[\"batch/replica/data=8 mlp=2\"]");
    REQUIRE(got["look.sum"].type == "f32[\"\"]");
    for (const auto& [name, value] : result.metrics) REQUIRE(!is_inspected(name));
  }
}

TEST_CASE("a step that does not inspect is the step without the calls") {
  const auto text = [](bool looks) {
    const SingleTask task(looking_task({.looks = looks}));
    const Mesh mesh = Mesh::standard({1, 1, 1});
    return graph_text(dce(task.train_graph({mesh, make_rules({}), some_examples(8).batch()})));
  };
  const std::string without = text(false);
  REQUIRE(text(true) == without);
  const InspectScope inspecting;
  REQUIRE(text(true).find("statistic") != std::string::npos);
  REQUIRE(text(false) == without);
}

TEST_CASE("what cannot be inspected is refused, with the line and the layer") {
  const InspectScope inspecting;
  const auto error = [](const std::string& also) {
    return error_of([&] { LinearTrial(looking_task({.also = also}), 8); });
  };
  REQUIRE_THAT(error("twice"), Contains("inspect_test.cc:") && Contains("[in look]") &&
                                   Contains("a layer adds 'plain' twice"));
  REQUIRE_THAT(error("bool"), Contains("'negative' is bool") && Contains("only numbers"));
  REQUIRE_THAT(error("name"), Contains("'Plain values' is not a name"));
}

// The tiny run; its feed-forward layers inspect their result.
class LookingFeedForward final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = LookingFeedForward;
    static constexpr std::string_view kName = "LookingFeedForward";
    Template<UnaryLayer> inner_tpl = FeedForward::HParams{};
    FIELDS(inner_tpl)
  };
  explicit LookingFeedForward(const HParams& p) : inner_(child("inner", p.inner_tpl)) {}

 private:
  Tensor fprop(Tensor x) const override {
    const Tensor y = inner_(x);
    inspect(y, "result");
    return y;
  }
  ChildLayer<UnaryLayer> inner_;
};

struct Setting {
  bool repeated = true;
  int64_t microbatches = 1;
  std::vector<int64_t> mesh = {1, 1, 1};
  Strategy strategy = Strategy::kReplicas;
};

// The output of steps 2 and 4, by step and name, and the losses.
struct Looked {
  std::map<std::string, Inspected> values;
  std::map<std::string, std::string> losses;
};

Looked looked(const Setting& setting, int64_t interval) {
  ExperimentConfig config = tiny_config(4);
  SingleTask::HParams& task = task_of(config);
  auto& lm = task.model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.num_layers = 2;
  const TransformerBlock::HParams block{.ffn_tpl = LookingFeedForward::HParams{}};
  lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block};
  if (setting.repeated) lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  task.train.num_microbatches = setting.microbatches;
  task.train.eval_interval_steps = 4;
  config.mesh.ici_mesh_shape = setting.mesh;
  config.mesh.axis_names = strategy_axes(setting.strategy, std::move(config.mesh.axis_names));
  config.rules = strategy_rules(setting.strategy);
  RunWith options;
  for (const int64_t size : setting.mesh) options.devices *= size;
  options.mode = TrainOptions{.inspect_interval_steps = interval};
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(config, directory.path(), options) == 0);
  Looked result{.losses = losses_of(directory.path())};
  std::istringstream lines(read_file(directory / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, "metrics.jsonl");
    if (json.find("event") == nullptr || json.at("event").as_string() != "inspect") continue;
    const auto number = [&](const char* key) { return json.at(key).as_number(); };
    const std::string name = json.at("name").as_string();
    result.values[fmt::format("{} {}", json.at("step").as_integer(), name)] = {
        name,
        json.at("type").as_string(),
        number("mean"),
        number("deviation"),
        number("least"),
        number("greatest"),
        number("zeros"),
        number("nonfinite")};
  }
  return result;
}

TEST_CASE("what is inspected is the same in a loop, over microbatches, on meshes and in stages") {
  const Looked expected = looked({.repeated = false}, 2);
  REQUIRE(expected.values.size() == 4);  // Two layers in two steps.
  REQUIRE(expected.values.contains("4 lm.transformer.x_layers[1].ffn.result"));
  REQUIRE(expected.losses == looked({.repeated = false}, 0).losses);  // Equal bits.
  const Setting settings[] = {
      {},
      {.microbatches = 4},
      {.microbatches = 2, .mesh = {1, 2, 2}, .strategy = Strategy::kTensor},
      {.mesh = {1, 4, 1}, .strategy = Strategy::kFullySharded},
      {.microbatches = 2, .mesh = {2, 1, 1, 1}, .strategy = Strategy::kPipeline},
  };
  for (const Setting& setting : settings) {
    INFO(setting.microbatches << " microbatches, mesh "
                              << fmt::format("{}", fmt::join(setting.mesh, "x")));
    const Looked got = looked(setting, 2);
    REQUIRE(got.values.size() == expected.values.size());
    for (const auto& [name, value] : expected.values)
      require_equal(got.values.at(name), value, 1e-4);
  }
}

}  // namespace
}  // namespace tessera
