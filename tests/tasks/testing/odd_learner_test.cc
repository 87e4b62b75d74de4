// SPDX-License-Identifier: Apache-2.0
// Optimizers, schedules, metrics and pipeline schedules of plugins that return invalid results, or
// throw: every function that they override ends in an Error that names the class.
#include <cmath>
#include <limits>

#include "tasks/run/eval/user_metrics.h"
#include "tasks/task/pipeline_schedules.h"
#include "tasks/testing/tested_layer.h"
#include "tasks/testing/tested_optimizer.h"
#include "tests/tasks/testing/odd_model.h"

namespace tessera {

class OddSchedule final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = OddSchedule;
    static constexpr std::string_view kName = "OddSchedule";
    std::string fault;
    FIELDS(fault)
  };
  explicit OddSchedule(const HParams& p) : p_(p) { throw_if(p.fault, "constructor"); }
  double value(int64_t, int64_t) const override {
    throw_if(p_.fault, "value()");
    if (p_.fault == "nan") return std::nan("");
    if (p_.fault == "infinite") return std::numeric_limits<double>::infinity();
    return p_.fault == "negative" ? -1.0 : 1.0;
  }
  int64_t warmup_steps() const override {
    throw_if(p_.fault, "warmup_steps()");
    return p_.fault == "negative warm-up" ? -1 : 0;
  }
  int64_t decay_end() const override {
    throw_if(p_.fault, "decay_end()");
    return -1;
  }

 private:
  HParams p_;
};

// Plain gradient descent with a slot that counts.
class OddOptimizer final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = OddOptimizer;
    static constexpr std::string_view kName = "OddOptimizer";
    double learning_rate = 0.1;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double weight_decay = 0.0;
    std::string fault;
    FIELDS(learning_rate, schedule_tpl, weight_decay, fault)
  };
  explicit OddOptimizer(const HParams& p) : BaseOptimizer(p), p_(p) {
    throw_if(p.fault, "constructor");
  }
  bool averages() const override { return p_.fault == "no average"; }
  std::vector<Slot> slots(const StoredWeight& weight) const override {
    throw_if(p_.fault, "slots()");
    const Slot sum{"sum", weight.type};
    if (p_.fault == "slots of the same name") return {sum, sum};
    if (p_.fault == "slot without a name") return {{"", weight.type}};
    if (p_.fault == "slot named a/b") return {{"a/b", weight.type}};
    if (p_.fault == "slot named ema") return {{"ema", weight.type}};
    if (p_.fault == "slot of integers") return {{"sum", make_type(DType::kI32, weight.type.axes)}};
    if (p_.fault == "slot of size -1") return {{"sum", make_type(DType::kF32, {{"x", -1, {}}})}};
    if (p_.fault == "slot split over nothing")
      return {{"sum", make_type(DType::kF32, {{"x", 4, {"none"}}})}};
    return weight.path == "bias" ? std::vector<Slot>{} : std::vector<Slot>{sum};
  }
  Updated update(const UpdateInputs& inputs) const override {
    throw_if(p_.fault, "update()");
    Updated next{decayed_step(inputs, scaled_gradient(inputs)), inputs.slots};
    if (inputs.path != "bias") next.slots[0] = old_state(inputs, 0) + 1.0;
    if (p_.fault == "no slots") next.slots.clear();
    if (p_.fault == "two slots") next.slots.push_back(next.slots[0]);
    if (p_.fault == "slot without a value") next.slots[0] = {};
    if (p_.fault == "slot of another type") next.slots[0] = reduce_sum(inputs.slots[0], "embed");
    if (p_.fault == "no parameter") next.parameter = {};
    if (p_.fault == "parameter in bf16") next.parameter = cast(next.parameter, DType::kBF16);
    if (p_.fault == "slot that is not declared") old_state(inputs, 1);
    return next;
  }

 private:
  HParams p_;
};

class OddScore final : public ScoreMetric {
 public:
  struct HParams {
    using Instance = OddScore;
    static constexpr std::string_view kName = "OddScore";
    std::string fault;
    FIELDS(fault)
  };
  explicit OddScore(const HParams& p) : p_(p) { throw_if(p.fault, "constructor"); }
  std::vector<std::string> names() const override {
    throw_if(p_.fault, "names()");
    if (p_.fault == "names twice") return {"count", "count"};
    return {p_.fault == "name with a slash" ? "a/b" : p_.fault == "empty name" ? "" : "count"};
  }
  void add(const ScoredExample& example) override {
    throw_if(p_.fault, "add()");
    if (p_.fault == "unknown score") example.scores.at("none");
    ++count_;
  }
  std::map<std::string, double> values() const override {
    throw_if(p_.fault, "values()");
    if (p_.fault == "no values") return {};
    if (p_.fault == "two values") return {{"count", count_}, {"counts", count_}};
    return {{"count", p_.fault == "nan" ? std::nan("") : count_}};
  }

 private:
  HParams p_;
  double count_ = 0.0;
};

class OddPredict final : public PredictMetric {
 public:
  struct HParams {
    using Instance = OddPredict;
    static constexpr std::string_view kName = "OddPredict";
    FIELDS()
  };
  explicit OddPredict(const HParams&) {}
  std::vector<std::string> names() const override { return {"exact", "exact"}; }
  void add(const DecodedExample&) override { throw 7; }
  std::map<std::string, double> values() const override { return {}; }
};

class OddPipeline final : public PipelineSchedule {
 public:
  struct HParams {
    using Instance = OddPipeline;
    static constexpr std::string_view kName = "OddPipeline";
    std::string fault;
    FIELDS(fault)
  };
  explicit OddPipeline(const HParams& p) : p_(p) {}
  PipelineTable table(int64_t stages, int64_t microbatches) const override {
    throw_if(p_.fault, "table()");
    PipelineTable table = gpipe_table(stages, microbatches);
    if (p_.fault == "no tasks") table.tasks.clear();
    if (p_.fault == "stages") table.stages = -1;
    if (p_.fault == "chunks") table.chunks = 0;
    if (p_.fault == "stage of a task") table.tasks[0].stage = 99;
    if (p_.fault == "tick of a task") table.tasks[0].tick = -5;
    return table;
  }

 private:
  HParams p_;
};

REGISTER_TEMPLATE(BaseSchedule, OddSchedule);
REGISTER_TEMPLATE(BaseOptimizer, OddOptimizer);
REGISTER_TEMPLATE(ScoreMetric, OddScore);
REGISTER_TEMPLATE(PredictMetric, OddPredict);
REGISTER_TEMPLATE(PipelineSchedule, OddPipeline);

namespace {

using Catch::Contains;

std::string error_with(const OddOptimizer::HParams& optimizer) {
  ExperimentConfig config = odd_config();
  config.task.as<SingleTask::HParams>().learner.optimizer_tpl = optimizer;
  return error_of_run(config);
}

TEST_CASE("what an optimizer gets wrong is an error with its class and the path of the weight") {
  const std::string slots = "tessera::OddOptimizer::slots()", where = "[in layer.scale]",
                    update = "tessera::OddOptimizer::update()";
  require_errors({{"", {"no error"}},
                  {"constructor throws", {"boom", "the constructor of tessera::OddOptimizer of "}},
                  {"slots() throws", {"boom", slots + " of ", where}},
                  {"slots() throws a number", {"of type int", slots, where}},
                  {"slots of the same name", {slots + ": a slot is called 'sum'", where}},
                  {"slot without a name", {slots + ": a slot is called ''", where}},
                  {"slot named a/b", {slots + ": a slot is called 'a/b'", where}},
                  {"slot named ema", {slots + ": a slot is called 'ema'", where}},
                  {"slot of integers", {slots + ": slot 'sum' is i32", "f32 or bf16", where}},
                  {"slot of size -1", {slots + ": slot 'sum' is f32[\"x=-1\"]", where}},
                  {"slot split over nothing", {slots + ": slot 'sum' is f32", "none", where}},
                  {"update() throws", {"boom", update + " of ", where}},
                  {"update() throws a number", {"of type int", update, where}},
                  {"no slots", {update + ": returned 0 slots, expected 1", where}},
                  {"two slots", {update + ": returned 2 slots, expected 1", where}},
                  {"slot without a value", {update + ": returned a slot without a value", where}},
                  {"slot of another type", {update + ": returned a slot f32", where}},
                  {"no parameter", {update + ": returned a parameter without a value", where}},
                  {"no average", {update + ": returned an average without a value", where}},
                  {"parameter in bf16", {update + ": returned a parameter bf16", where}},
                  {"slot that is not declared", {"slot 1 of 'layer.scale' is read", where}}},
                 [](const std::string& fault) { return error_with({.fault = fault}); });
}

TEST_CASE("what a schedule gets wrong is an error with its class") {
  const std::string value = "tessera::OddSchedule::value()",
                    warmup = "tessera::OddSchedule::warmup_steps()";
  require_errors({{"constructor throws", {"boom", "the constructor of tessera::OddSchedule of "}},
                  {"value() throws", {"boom", value}},
                  {"value() throws a number", {"of type int", value}},
                  {"nan", {value + ": returned nan at step 0, expected a finite number"}},
                  {"infinite", {value + ": returned inf at step 0"}},
                  {"negative", {value + ": returned -1 at step 0"}},
                  {"warmup_steps() throws", {"boom", warmup}},
                  {"warmup_steps() throws a number", {"of type int", warmup}},
                  {"decay_end() throws", {"boom", "tessera::OddSchedule::decay_end()"}},
                  {"negative warm-up", {warmup + ": returned -1, expected 0 or more"}}},
                 [](const std::string& fault) {
                   return error_with({.schedule_tpl = OddSchedule::HParams{.fault = fault}});
                 });
}

TEST_CASE("what a metric gets wrong is an error with its class and its field") {
  const std::string of = "tessera::OddScore::", field = "[in score_metrics.odd]";
  require_errors({{"", {"no error"}},
                  {"constructor throws", {"boom", "the constructor of tessera::OddScore", field}},
                  {"names() throws", {"boom", of + "names()", field}},
                  {"names() throws a number", {"of type int", of + "names()", field}},
                  {"names twice", {of + "names(): returned the name 'count'", field}},
                  {"name with a slash", {of + "names(): returned the name 'a/b'", field}},
                  {"empty name", {of + "names(): returned the name ''", field}},
                  {"add() throws", {"boom", of + "add()", field}},
                  {"add() throws a number", {"of type int", of + "add()", field}},
                  {"unknown score", {of + "add()", field}},
                  {"values() throws", {"boom", of + "values()", field}},
                  {"values() throws a number", {"of type int", of + "values()", field}},
                  {"no values", {of + "values() lacks 'count', which names() lists", field}},
                  {"two values", {of + "values(): 'counts' is", "did you mean 'count'?", field}},
                  {"nan", {of + "values(): 'count' is nan", field}}},
                 [](const std::string& fault) {
                   ExperimentConfig config = odd_config();
                   config.eval.datasets["validation"].score_metrics = {
                       {"odd", OddScore::HParams{.fault = fault}}};
                   return error_of_run(config);
                 });
  EvalHParams p;
  p.predict_metrics["odd"] = OddPredict::HParams{};
  auto metrics = make_predict_metrics(p);
  REQUIRE_THAT(error_of([&] { metrics.names(); }),
               Contains("tessera::OddPredict::names(): returned the name 'exact'") &&
                   Contains("[in predict_metrics.odd]"));
  REQUIRE_THAT(error_of([&] { metrics.add(DecodedExample{}); }),
               Contains("of type int") && Contains("tessera::OddPredict::add()"));
}

TEST_CASE("what a pipeline schedule gets wrong is an error with its name") {
  const std::string table = "tessera::OddPipeline::table()";
  require_errors({{"", {"no error"}},
                  {"table() throws", {"boom", table}},
                  {"table() throws a number", {"of type int", table}},
                  {"no tasks", {"GPipe: "}},
                  {"stages", {"OddPipeline: the schedule has -1 stages"}},
                  {"chunks", {"OddPipeline: the schedule has 0 chunks"}},
                  {"stage of a task", {"GPipe: "}},
                  {"tick of a task", {"GPipe: "}}},
                 [](const std::string& fault) {
                   const Template<PipelineSchedule> made = OddPipeline::HParams{.fault = fault};
                   return error_of([&] { checked_table(made, 2, 4); });
                 });
}

TEST_CASE("TestedOptimizer takes the steps of an optimizer, and detects its faults") {
  TestedOptimizer sgd(Sgd::HParams{.learning_rate = 0.5, .momentum = 0.5}, {.weight = {1, 2}});
  sgd.step({1, 0});
  sgd.step({0, 2});
  expect_near(sgd.weight(), {1 - 0.5 - 0.25, 2 - 0.5 * 2});
  expect_near(sgd.slot("momentum"), {0.5, 2});
  REQUIRE_THAT(error_of([&] { sgd.slot("m"); }), Contains("has no slot 'm'"));
  REQUIRE_THAT(error_of([] {
                 TestedOptimizer(OddOptimizer::HParams{.fault = "two slots"}, {.weight = {1}});
               }),
               Contains("OddOptimizer::update(): returned 2 slots") && Contains("[in w]"));
}

TEST_CASE("an optimizer sees the path of a weight, and its schedule the step") {
  TestedOptimizer bias(OddOptimizer::HParams{}, {.path = "bias", .weight = {1}});
  REQUIRE_THAT(error_of([&] { bias.slot("sum"); }), Contains("has no slot"));
  TestedOptimizer other(
      OddOptimizer::HParams{.schedule_tpl = LinearRampupLinearDecay::HParams{.warmup_steps = 2}},
      {.weight = {1}});
  other.step({1});
  expect_near(other.weight(), {1});
  other.step({1});
  expect_near(other.weight(), {1 - 0.05});
  expect_near(other.slot("sum"), {2});
}

TEST_CASE("TestedOptimizer gives the same steps on a mesh") {
  const std::vector<double> weight = {1, 2, 3, 4, 5, 6, 7, 8}, gradient = {1, 0, 2, 0, 3, 0, 4, 1};
  const Template<BaseOptimizer> adam = Adam::HParams{.clip_threshold = 0.5};
  const std::string type = "f32[\"embed=4 mlp=2\"]";
  TestedOptimizer whole(adam, {.type = type, .weight = weight});
  TestedOptimizer split(adam, {.type = type,
                               .weight = weight,
                               .mesh = {.ici_mesh_shape = {1, 2, 2}},
                               .rules = {.weights = "embed -> data, mlp -> mdl"}});
  for (TestedOptimizer* each : {&whole, &split}) each->step(gradient);
  expect_near(split.weight(), whole.weight());
  REQUIRE(whole.weight() != weight);
}

}  // namespace
}  // namespace tessera
