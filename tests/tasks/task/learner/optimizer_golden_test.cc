// SPDX-License-Identifier: Apache-2.0
// Weights after twenty steps of each optimizer, compared with those of PyTorch, pytorch_optimizer,
// schedulefree and sophia-opt (tests/golden/optimizers.py): in double precision, and with weights
// and state in f32.
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/testing/tested_optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/optimizer_trial.h"
#include "tests/support/source_tree.h"

namespace tessera {
namespace {

constexpr int64_t kSteps = 20;
constexpr double kRate = 0.05;

// The rates of optimizers.py.
const PiecewiseConstant::HParams kSchedule{.boundaries = {5, 12}, .values = {1.0, 0.5, 2.0}};

std::vector<double> formula(int64_t count, int64_t seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>((i * 37 + seed * 101 + 13) % 211 - 105) / 100.0);
  return values;
}

template <typename P>
Template<BaseOptimizer> with_schedule(P p) {
  p.learning_rate = kRate;
  p.schedule_tpl = kSchedule;
  return p;
}

const std::map<std::string, Template<BaseOptimizer>> kOptimizers = {
    {"adamw", with_schedule(AdamW::HParams{.weight_decay = 0.1})},
    {"amsgrad", with_schedule(AdamW::HParams{.beta2 = 0.7, .weight_decay = 0.1, .amsgrad = true})},
    {"sgd", with_schedule(Sgd::HParams{.momentum = 0.9, .nesterov = true})},
    {"adagrad", with_schedule(Adagrad::HParams{.initial_accumulator = 0.1})},
    {"rms_prop", with_schedule(RmsProp::HParams{})},
    {"rms_prop_centered",
     with_schedule(RmsProp::HParams{.decay = 0.9, .momentum = 0.8, .centered = true})},
    {"lion", with_schedule(Lion::HParams{.weight_decay = 0.1})},
    {"lamb",
     with_schedule(Lamb::HParams{.bias_correction = false, .max_norm = 1.5, .weight_decay = 0.1})},
    {"lamb_debiased", with_schedule(Lamb::HParams{.max_norm = 0.0, .weight_decay = 0.1})},
    {"sophia", with_schedule(SophiaG::HParams{.rho = 0.1})},
    {"shampoo", with_schedule(Shampoo::HParams{
                    .momentum = 0.0,
                    .statistics_decay = 1.0,
                    .epsilon = 0.1,
                    .scale = ShampooScale::kOriginal,
                    .other_tpl = AdamW::HParams{.learning_rate = kRate, .weight_decay = 0.1}})},
    {"shampoo_averages",
     with_schedule(Shampoo::HParams{
         .statistics_decay = 0.8,
         .epsilon = 0.1,
         .max_precondition_dims = 5,
         .other_tpl = AdamW::HParams{.learning_rate = kRate, .weight_decay = 0.1}})},
    {"schedule_free", with_schedule(ScheduleFreeAdamW::HParams{.weight_decay = 0.1})},
    {"schedule_free_powers",
     with_schedule(ScheduleFreeAdamW::HParams{.step_power = 0.5, .rate_power = 1.0})},
};

// A line of the file: an optimizer, "weight" or "average", axes, values.
struct Row {
  std::string optimizer, what, axes;
  std::vector<double> values;
  std::string type() const { return "f32[\"" + axes + "\"]"; }
  int64_t count() const { return static_cast<int64_t>(values.size()); }
};

std::vector<Row> golden_rows() {
  std::istringstream lines(read_file(source_root() / "tests/golden/optimizers.txt"));
  std::vector<Row> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Row row;
    words >> row.optimizer >> row.what;
    std::getline(words, row.axes, '[');
    std::getline(words, row.axes, ']');
    for (double value = 0.0; words >> value;) row.values.push_back(value);
    rows.push_back(row);
  }
  return rows;
}

void require_close(const std::vector<double>& got, const Row& row, double tolerance) {
  REQUIRE(got.size() == row.values.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    REQUIRE(got[i] == Approx(row.values[i]).epsilon(tolerance).margin(tolerance));
  }
}

TEST_CASE("optimizers take the steps of PyTorch and of the libraries that published them") {
  const std::vector<Row> rows = golden_rows();
  REQUIRE(rows.size() == 4 * (kOptimizers.size() + 2));
  for (const Row& row : rows) {
    CAPTURE(row.optimizer, row.what, row.axes);
    TestedOptimizer optimizer(kOptimizers.at(row.optimizer),
                              {.type = row.type(), .weight = formula(row.count(), 0)});
    for (int64_t step = 1; step <= kSteps; ++step) optimizer.step(formula(row.count(), step));
    require_close(row.what == "weight" ? optimizer.weight() : optimizer.average(), row, 1e-10);
  }
}

TEST_CASE("the steps of optimizers in f32 are those in double precision") {
  for (const Row& row : golden_rows()) {
    CAPTURE(row.optimizer, row.what, row.axes);
    const Template<BaseOptimizer>& optimizer_tpl = kOptimizers.at(row.optimizer);
    const std::unique_ptr<BaseOptimizer> optimizer = optimizer_tpl.instantiate();
    OptimizerTrial trial{.optimizer_tpl = optimizer_tpl,
                         .type = parse_type(row.type()),
                         .parameter = formula(row.count(), 0),
                         .weight_decay = optimizer->weight_decay()};
    std::vector<std::vector<double>> gradients;
    for (int64_t step = 0; step < kSteps; ++step) {
      gradients.push_back(formula(row.count(), step + 1));
      trial.learning_rates.push_back(optimizer->learning_rate(step, kSteps));
    }
    trial.run(gradients);
    require_close(row.what == "weight" ? trial.parameter : trial.average, row, 1e-5);
  }
}

}  // namespace
}  // namespace tessera
