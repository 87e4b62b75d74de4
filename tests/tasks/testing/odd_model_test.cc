// SPDX-License-Identifier: Apache-2.0
// Layers, models and tasks of plugins that return invalid results, or throw: every function that
// they override ends in an Error that names the class, and for a layer its path and line.
#include "tests/tasks/testing/odd_model.h"

#include <optional>

#include "tests/support/run_with.h"

namespace tessera {

using Catch::Contains;

OddLayer::OddLayer(const HParams& p) : p_(p) {
  throw_if(p.fault, "constructor");
  if (p.fault == "op in the constructor") constant(1.0, DType::kF32);
  scale_ = weight("scale", {{"embed", 4, {}}}, ones());
  if (p.fault == "size 0") weight("none", {{"embed", 0, {}}}, ones());
  if (p.fault == "the same name") weight("scale", {{"embed", 4, {}}}, ones());
  if (p.fault == "weight in the constructor") param(scale_);
}

Tensor OddLayer::fprop(Tensor x) const {
  throw_if(p_.fault, "fprop()");
  static std::optional<Tensor> kept;
  if (p_.fault == "no tensor") return {};
  if (p_.fault == "undeclared weight") return x * reduce_sum(param(undeclared_), "embed");
  if (p_.fault == "unmade child") return unmade_(x);
  if (p_.fault == "operand without a value") return x + Tensor();
  if (p_.fault == "type of no tensor") return Tensor().type().rank() > 0 ? x : -x;
  if (p_.fault == "kept tensor") {
    if (kept) return x + *kept;
    kept = x;
  }
  return x * reduce_sum(param(scale_), "embed");
}

OddModel::OddModel(const HParams& p)
    : p_(p), layer_(child<UnaryLayer>("layer", OddLayer::HParams{.fault = p.layer_fault})) {}

Tensor OddModel::squares(const Features& features) const {
  return square(layer_(cast(features.get("ids"), DType::kF32)));
}

ModelOutput OddModel::fprop(const Features& features) const {
  throw_if(p_.fault, "fprop()");
  const Tensor values = squares(features);
  const Tensor weights = constant(1.0, DType::kF32, values.type().axes);
  const Metric mean{reduce_sum(values), reduce_sum(weights)};
  ModelOutput output{mean, {{"squares", mean}}, {{"loss", {values, weights}}}};
  if (p_.fault == "no loss") output.loss = {};
  if (p_.fault == "no weight") output.loss.weight = {};
  if (p_.fault == "loss of each example") output.loss = {values, weights};
  if (p_.fault == "loss in bf16") output.loss.sum = constant(1.0, DType::kBF16);
  if (p_.fault == "no metric") output.metrics["squares"] = {};
  if (p_.fault == "metric named loss") output.metrics["loss"] = mean;
  if (p_.fault == "metric without a name") output.metrics[""] = mean;
  if (p_.fault == "terms without batch") output.terms["loss"] = mean;
  if (p_.fault == "terms without loss") output.terms = {{"squares", {values, weights}}};
  return output;
}

Tensor OddModel::fprop_logits(const Features& features) const {
  throw_if(p_.fault, "fprop_logits()");
  if (p_.fault == "no logits") return {};
  if (p_.fault == "logits without batch") return reduce_sum(squares(features), "batch");
  if (p_.fault == "logits of ids") return features.get("ids");
  return broadcast(squares(features), {{"vocab", 64, {}}});
}

Tensor OddModel::fprop_next_logits(const Features& features) const {
  throw_if(p_.fault, "fprop_next_logits()");
  if (p_.fault == "no logits") return {};
  return squares(features);
}

// A task that takes its graphs from a SingleTask, or returns one without an output.
class OddTask final : public BaseTask {
 public:
  struct HParams {
    using Instance = OddTask;
    static constexpr std::string_view kName = "OddTask";
    std::string fault;
    FIELDS(fault)
  };
  explicit OddTask(const HParams& p) : p_(p), task_(odd_task()) {}
  const BaseModel& model() const override { return task_.model(); }
  const Learner& learner() const override { return task_.learner(); }
  const TrainHParams& train() const override { return task_.train(); }
  const DecodeHParams& decode() const override { return task_.decode(); }
  Graph train_graph(const TraceSetting& setting) const override {
    return graph("train_graph()", task_.train_graph(setting));
  }
  Graph eval_graph(const TraceSetting& setting, Weights weights) const override {
    return graph("eval_graph()", task_.eval_graph(setting, weights));
  }
  Graph logits_graph(const TraceSetting& setting, Weights weights) const override {
    return graph("logits_graph()", task_.logits_graph(setting, weights));
  }
  Graph decode_graph(const DecodeSetting&, Weights) const override { return {}; }
  Graph cast_weights_graph(const DecodeSetting&, Weights) const override { return {}; }
  Graph reorder_cache_graph(const DecodeSetting&) const override { return {}; }

 private:
  Graph graph(const std::string& function, Graph whole) const {
    throw_if(p_.fault, function);
    return p_.fault == function ? Graph() : std::move(whole);
  }
  HParams p_;
  SingleTask task_;
};

SingleTask::HParams odd_task(const OddModel::HParams& model) {
  return {.model = model,
          .learner = {.optimizer_tpl = Sgd::HParams{.learning_rate = 1e-4}},
          .train = {.num_train_steps = 2, .save_interval_steps = 0, .eval_interval_steps = 0}};
}

ExperimentConfig odd_config(const OddModel::HParams& model) {
  SyntheticInput::HParams input{.global_batch_size = 2, .seq_len = 8};
  SyntheticInput::HParams validation = input;
  validation.num_batches = 2;
  return {.task = odd_task(model), .input = input, .eval_inputs = {{"validation", validation}}};
}

std::string error_of_run(const ExperimentConfig& config, RunWith options) {
  const TemporaryDirectory directory;
  options.experiment = "tests.Odd";
  options.job_log_dir = directory / "run";
  options.verbosity = Verbosity::kSilent;
  const auto devices = make_test_devices(1, 1);
  ProcessGroup alone;
  return error_of([&] { make_run(config, options, pointers(devices), alone)->run(); });
}

void require_errors(const std::vector<Fault>& faults,
                    const std::function<std::string(const std::string& fault)>& error_with) {
  for (const Fault& fault : faults) {
    const std::string error = error_with(fault.name);
    INFO(fault.name << ": " << error);
    for (const std::string& part : fault.parts) REQUIRE_THAT(error, Contains(part));
  }
}

namespace {

TEST_CASE("the small model trains and evaluates") {
  REQUIRE(error_of_run(odd_config()) == "no error");
}

TEST_CASE("what a layer gets wrong is an error with its class, its path and its line") {
  const std::string here = "tests/tasks/testing/odd_model_test.cc:";
  require_errors(
      {{"no tensor",
        {"tessera::OddLayer::fprop(): returned a Tensor without a value", "[in layer]"}},
       {"fprop() throws",
        {"boom", "[in layer]", "[in tessera::OddLayer::fprop() of ", "test_tasks_testing"}},
       {"fprop() throws a number", {"an exception of type int", "tessera::OddLayer::fprop() of "}},
       {"constructor throws",
        {"boom", "[in layer]", "[in the constructor of tessera::OddLayer of "}},
       {"constructor throws a number", {"of type int", "the constructor of tessera::OddLayer"}},
       {"op in the constructor", {"an op is called outside of a trace", "[in layer]"}},
       {"weight in the constructor", {"is read outside of fprop", "[in layer]"}},
       {"size 0", {"axis embed of a weight has size 0", "[in layer"}},
       {"the same name", {"scale"}},
       {"undeclared weight",
        {here, "tessera::OddLayer::fprop() reads a weight that it has not declared", "[in layer]"}},
       {"unmade child", {"a layer is called that was not made", "[in layer]"}},
       {"operand without a value", {here, "add: a Tensor without a value is used", "[in layer]"}},
       {"type of no tensor", {"a Tensor without a value is used", "[in layer]"}},
       {"kept tensor", {here, "add: a Tensor of another", "[in layer]"}}},
      [](const std::string& fault) { return error_of_run(odd_config({.layer_fault = fault})); });
}

TEST_CASE("what a model gets wrong is an error with its class") {
  const std::string fprop = "tessera::OddModel::fprop()";
  require_errors(
      {{"fprop() throws", {"boom [in " + fprop + " of "}},
       {"fprop() throws a number", {"of type int", fprop}},
       {"no loss", {fprop + ": the loss is without a value, expected f32 scalars"}},
       {"no weight", {fprop + ": the loss is without a value"}},
       {"loss of each example", {fprop + ": the loss is f32[\"batch", "scalars"}},
       {"loss in bf16", {fprop + ": the loss is bf16"}},
       {"no metric", {fprop + ": metric 'squares' is without a value"}},
       {"metric named loss", {"a metric 'loss'"}},
       {"metric without a name", {"a metric ''"}},
       {"terms without batch", {fprop + ": terms['loss'] is f32", "the axis 'batch'"}},
       {"terms without loss", {fprop + ": terms lacks 'loss'"}},
       {"fprop_logits() throws", {"boom [in tessera::OddModel::fprop_logits() of "}},
       {"no logits", {"OddModel::fprop_logits(): returned a Tensor without a value"}},
       {"logits without batch", {"OddModel::fprop_logits(): returned f32[\"seq"}},
       {"logits of ids", {"OddModel::fprop_logits(): returned i32"}}},
      [](const std::string& fault) { return error_of_run(odd_config({.fault = fault})); });
}

TEST_CASE("what a model gets wrong in decoding is an error with its class") {
  const std::string function = "tessera::OddModel::fprop_next_logits()";
  require_errors(
      {{"fprop_next_logits() throws", {"boom [in " + function}},
       {"fprop_next_logits() throws a number", {"of type int", function}},
       {"no logits", {function + ": returned a Tensor without a value"}},
       {"logits without batch", {"no error"}}},
      [](const std::string& fault) {
        const SingleTask task(odd_task({.fault = fault}));
        return error_of([&] { task.decode_graph({.cache_length = 4}, Weights::kTrained); });
      });
}

TEST_CASE("what a task gets wrong is an error with its class") {
  std::vector<Fault> rows;
  for (const std::string name : {"train_graph()", "eval_graph()", "logits_graph()"}) {
    const std::string function = "tessera::OddTask::" + name;
    rows.push_back({name, {function + ": the graph has no output '"}});
    rows.push_back({name + " throws", {"boom [in " + function}});
    rows.push_back({name + " throws a number", {"of type int", function}});
  }
  require_errors(rows, [](const std::string& fault) {
    ExperimentConfig config = odd_config();
    config.task = OddTask::HParams{.fault = fault};
    return error_of_run(config);
  });
}

}  // namespace

REGISTER_TEMPLATE(UnaryLayer, OddLayer);
REGISTER_TEMPLATE(BaseModel, OddModel);
REGISTER_TEMPLATE(BaseTask, OddTask);

}  // namespace tessera
