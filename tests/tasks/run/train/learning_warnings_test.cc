// SPDX-License-Identifier: Apache-2.0
// Warnings about weights that get no gradient about a warm-up longer than the run, and about a
// decay that ends before it.
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "tasks/run/train/run_health.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"

namespace tessera {
namespace {

// A mean of squares to which two of three weights do not contribute.
class IdleModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = IdleModel;
    static constexpr std::string_view kName = "IdleModel";
    Field<DTypePolicy> dtypes;
    FIELDS(dtypes)
  };
  explicit IdleModel(const HParams& p)
      : BaseModel({.dtypes = p.dtypes}),
        used_(weight("used", {{"embed", LinearModel::kInputs, {}}}, ones())),
        stopped_(weight("stopped", {{"embed", LinearModel::kInputs, {}}}, ones())),
        unread_(weight("unread", {{"embed", LinearModel::kInputs, {}}}, ones())) {}

 private:
  ModelOutput fprop(const Features& features) const override {
    const Tensor x = features.get("x") * param(used_) + stop_gradient(param(stopped_));
    const Tensor weights = features.get("weights");
    return {{reduce_sum(reduce_sum(square(x), "embed") * weights), reduce_sum(weights)}, {}};
  }

  Tensor fprop_logits(const Features& features) const override { return features.get("x"); }

  Weight used_, stopped_, unread_;
};

std::vector<std::string> warnings(const SingleTask::HParams& p) {
  const SingleTask task(p);
  return learning_warnings(task, task.train_graph({Mesh::standard({1, 1, 1}), make_rules({}),
                                                   some_examples(4).batch()}));
}

TEST_CASE("weights that the loss does not depend on are named, unless they are frozen") {
  SingleTask::HParams p = linear_task();
  REQUIRE(warnings(p).empty());
  p.model = IdleModel::HParams{};
  p.train.num_microbatches = GENERATE(1, 2);  // 2: the loss is a carry of a loop.
  REQUIRE(warnings(p) ==
          std::vector<std::string>{
              "no gradient reaches stopped, unread, since the loss does not depend on them; use "
              "them in fprop, or list them in task.learner.bprop_variable_exclusion"});
  p.learner.bprop_variable_exclusion = {"stopped"};
  REQUIRE_THAT(warnings(p).at(0), Catch::Contains("no gradient reaches unread, since"));
  p.learner.bprop_variable_exclusion = {"stopped", "unread"};
  REQUIRE(warnings(p).empty());
}

TEST_CASE("a warm-up that does not end within the run is mentioned, with the last learning rate") {
  SingleTask::HParams p = linear_task();
  p.train.num_train_steps = 100;
  p.learner.optimizer_tpl = Sgd::HParams{
      .learning_rate = 0.1, .schedule_tpl = LinearRampupCosineDecay::HParams{.warmup_steps = 99}};
  REQUIRE(warnings(p).empty());
  p.train.num_train_steps = 50;
  REQUIRE(warnings(p) ==
          std::vector<std::string>{
              "the warm-up of the learning rate takes 99 steps, but the run has 50: it ends at a "
              "learning rate of 0.0495; set a shorter warm-up, or more steps"});
}

TEST_CASE("a decay that ends before the run is mentioned with both steps, for each optimizer") {
  SingleTask::HParams p = linear_task();
  p.train.num_train_steps = 100;
  const auto ends_at = [](int64_t step) {
    return Sgd::HParams{
        .learning_rate = 0.1,
        .schedule_tpl = LinearRampupLinearDecay::HParams{.decay_end = step, .min_ratio = 0.25}};
  };
  p.learner.optimizer_tpl = ends_at(100);
  REQUIRE(warnings(p).empty());
  p.learner.optimizer_tpl = ends_at(80);
  const std::string text =
      "the decay of the learning rate ends at step 80 (decay_end), but the run has 100: the steps "
      "after it have a learning rate of 0.025; set decay_end to -1, the end of the run, or "
      "num_train_steps to 80";
  REQUIRE(warnings(p) == std::vector<std::string>{text});
  p.learner.optimizer_tpl = Sgd::HParams{};
  p.learner.optimizer_rules = {{"biases", {"bias"}, ends_at(80)}};
  REQUIRE(warnings(p) == std::vector<std::string>{"optimizer rule 'biases': " + text});
}

}  // namespace
}  // namespace tessera
