// SPDX-License-Identifier: Apache-2.0
// Optimizers compared with their published formulas, implemented here in double precision.
#include "tests/support/optimizer_trial.h"

#include <cmath>

#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// State is kept in f32, so the tolerance allows a few of its roundings.
constexpr double kTolerance = 2e-6;

void require_close(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    REQUIRE(got[i] == Approx(expected[i]).margin(kTolerance).epsilon(kTolerance));
  }
}

double rms(const std::vector<double>& values) {
  double squares = 0.0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

const Type kMatrix = make_type(DType::kF32, {{"embed", 3, {}}, {"mlp", 4, {}}});

std::vector<std::vector<double>> three_gradients(int64_t size) {
  return {some_numbers(size, 1), some_numbers(size, 2), some_numbers(size, 3)};
}

TEST_CASE("AdamW is Adam with bias-corrected moments and decoupled weight decay") {
  OptimizerTrial trial{
      .optimizer_tpl = AdamW::HParams{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3},
      .type = kMatrix,
      .parameter = some_numbers(12, 7),
      .weight_decay = 0.1,
      .gradient_scale = 0.5};
  std::vector<double> w = trial.parameter, m(12, 0.0), v(12, 0.0);
  const auto gradients = three_gradients(12);
  for (size_t t = 1; t <= gradients.size(); ++t)
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = 0.5 * gradients[t - 1][i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.99 * v[i] + 0.01 * g * g;
      const double m_hat = m[i] / (1.0 - std::pow(0.9, t));
      const double v_hat = v[i] / (1.0 - std::pow(0.99, t));
      w[i] -= 0.1 * (m_hat / (std::sqrt(v_hat) + 1e-3) + 0.1 * w[i]);
    }
  trial.run(gradients);
  require_close(trial.parameter, w);
  require_close(trial.slots[0], m);
  require_close(trial.slots[1], v);
}

// Praxis' ShardedAdam: bias-corrected decay rates, RMS cap, weight decay added to the update.
std::vector<double> pax_adam(std::vector<double> w,
                             const std::vector<std::vector<double>>& gradients,
                             const Adam::HParams& p, double decay, double learning_rate) {
  std::vector<double> m(w.size(), 0.0), v(w.size(), 0.0), update(w.size());
  for (size_t step = 0; step < gradients.size(); ++step) {
    const auto corrected = [&](double beta) {
      const double t = static_cast<double>(step) + 1.0;
      return beta * (1.0 - std::pow(beta, t - 1.0)) / (1.0 - std::pow(beta, t));
    };
    const double beta1 = corrected(p.beta1), beta2 = corrected(p.beta2);
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradients[step][i];
      m[i] = beta1 * m[i] + (1.0 - beta1) * g;
      v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
      update[i] = m[i] / (std::sqrt(v[i] + p.epsilon_root) + p.epsilon);
    }
    const double cap = p.clip_threshold > 0.0 ? std::max(1.0, rms(update) / p.clip_threshold) : 1.0;
    for (size_t i = 0; i < w.size(); ++i) w[i] -= learning_rate * (update[i] / cap + decay * w[i]);
  }
  return w;
}

TEST_CASE("Adam follows Pax: bias-corrected decay rates, then the RMS cap, then weight decay") {
  for (const double clip_threshold : {0.0, 0.3}) {
    INFO("clip_threshold " << clip_threshold);
    const Adam::HParams p{.beta1 = 0.9,
                          .beta2 = 0.99,
                          .epsilon = 1e-6,
                          .epsilon_root = 1e-4,
                          .clip_threshold = clip_threshold};
    OptimizerTrial trial{.optimizer_tpl = p,
                         .type = kMatrix,
                         .parameter = some_numbers(12, 7),
                         .weight_decay = 0.05};
    const std::vector<double> expected =
        pax_adam(trial.parameter, three_gradients(12), p, 0.05, 0.1);
    trial.run(three_gradients(12));
    require_close(trial.parameter, expected);
  }
}

TEST_CASE("the update of a stacked weight is capped separately for each layer") {
  const Adam::HParams p{.clip_threshold = 0.5};
  const Type stack = make_type(DType::kF32, {{std::string(kLayersAxis), 2, {}}, {"embed", 6, {}}});
  OptimizerTrial trial{.optimizer_tpl = p, .type = stack, .parameter = some_numbers(12, 7)};
  std::vector<double> gradient = some_numbers(12, 1);
  for (size_t i = 0; i < 6; ++i) gradient[i] *= 1e-9;  // Far below epsilon: no cap for layer 0.

  std::vector<double> expected;
  for (size_t layer = 0; layer < 2; ++layer) {
    const auto part = [&](const std::vector<double>& whole) {
      return std::vector<double>(whole.begin() + static_cast<int64_t>(6 * layer),
                                 whole.begin() + static_cast<int64_t>(6 * layer + 6));
    };
    const auto w = pax_adam(part(trial.parameter), {part(gradient)}, p, 0.0, 0.1);
    expected.insert(expected.end(), w.begin(), w.end());
  }
  trial.run({gradient});
  require_close(trial.parameter, expected);
}

TEST_CASE("a stacked weight is updated like the weights of its layers") {
  const Type stack = make_type(DType::kF32, {{std::string(kLayersAxis), 3, {}}, {"embed", 4, {}}});
  const Type one = make_type(DType::kF32, {{"embed", 4, {}}});
  const std::vector<Template<BaseOptimizer>> optimizers = {Lamb::HParams{.max_norm = 1.1},
                                                           ScheduleFreeAdamW::HParams{},
                                                           Adam::HParams{}, Lion::HParams{}};
  for (const Template<BaseOptimizer>& optimizer_tpl : optimizers) {
    INFO(optimizer_tpl.name());
    OptimizerTrial whole{.optimizer_tpl = optimizer_tpl,
                         .type = stack,
                         .parameter = some_numbers(12, 7),
                         .weight_decay = 0.1};
    OptimizerTrial layers = whole;
    layers.parameter.clear();
    for (int64_t layer = 0; layer < 3; ++layer) {
      const auto part = [&](const std::vector<double>& all) {
        return std::vector<double>(all.begin() + 4 * layer, all.begin() + 4 * layer + 4);
      };
      OptimizerTrial trial = whole;
      trial.type = one;
      trial.parameter = part(whole.parameter);
      std::vector<std::vector<double>> gradients;
      for (const auto& gradient : three_gradients(12)) gradients.push_back(part(gradient));
      trial.run(gradients);
      std::ranges::copy(trial.parameter, std::back_inserter(layers.parameter));
    }
    whole.run(three_gradients(12));
    REQUIRE(whole.parameter == layers.parameter);
  }
}

TEST_CASE("the update of a stack whose layers are split keeps the layout of the stack") {
  const Mesh mesh({{"stage", 2}});
  const std::string type = "f32[\"layers/stage=4 embed=8 mlp=8\"]";
  const std::vector<Template<BaseOptimizer>> optimizers = {
      Adam::HParams{.clip_threshold = 0.5}, Lamb::HParams{}, ScheduleFreeAdamW::HParams{},
      Adafactor::HParams{.min_dim_size_to_factor = 4, .multiply_by_parameter_scale = true}};
  for (const Template<BaseOptimizer>& optimizer_tpl : optimizers) {
    INFO(optimizer_tpl.name());
    const auto optimizer = optimizer_tpl.instantiate();
    Trial trial(mesh, {type, type, "f32[\"\"]", "f32[\"\"]", "f32[\"\"]", "bool[\"\"]", type});
    const std::vector<Tensor>& in = trial.inputs();
    UpdateInputs inputs{.path = "w",
                        .parameter = in[0],
                        .gradient = in[1],
                        .gradient_scale = in[2],
                        .learning_rate = in[3],
                        .count = in[4],
                        .apply = in[5],
                        .average = in[6]};
    for (const Slot& slot : optimizer->slots({"w", in[0].type(), {}}))
      inputs.slots.push_back(input("slot " + slot.name, InputKind::kState, slot.type));
    REQUIRE(optimizer->update(inputs).parameter.type() == in[0].type());
  }
}

TEST_CASE("Sgd supports momentum and Nesterov momentum") {
  struct Case {
    double momentum;
    bool nesterov;
  };
  for (const Case c : {Case{0.0, false}, Case{0.9, false}, Case{0.9, true}}) {
    INFO("momentum " << c.momentum << " nesterov " << c.nesterov);
    OptimizerTrial trial{
        .optimizer_tpl = Sgd::HParams{.momentum = c.momentum, .nesterov = c.nesterov},
        .type = kMatrix,
        .parameter = some_numbers(12, 7),
        .weight_decay = 0.2};
    std::vector<double> w = trial.parameter, trace(12, 0.0);
    for (const auto& gradient : three_gradients(12))
      for (size_t i = 0; i < w.size(); ++i) {
        trace[i] = c.momentum * trace[i] + gradient[i];
        const double update = c.nesterov ? gradient[i] + c.momentum * trace[i] : trace[i];
        w[i] -= 0.1 * (update + 0.2 * w[i]);
      }
    trial.run(three_gradients(12));
    require_close(trial.parameter, w);
  }
}

TEST_CASE("Adafactor keeps a matrix's second moment as row and column means") {
  const Adafactor::HParams p{.beta1 = 0.9, .min_dim_size_to_factor = 3};
  OptimizerTrial trial{.optimizer_tpl = p, .type = kMatrix, .parameter = some_numbers(12, 7)};
  std::vector<double> w = trial.parameter, row(3, 0.0), column(4, 0.0), m(12, 0.0);
  const auto gradients = three_gradients(12);
  for (size_t step = 0; step < gradients.size(); ++step) {
    const std::vector<double>& g = gradients[step];
    const double decay = 1.0 - std::pow(static_cast<double>(step) + 1.0, -0.8);
    for (size_t r = 0; r < 3; ++r) {
      double mean = 0.0;
      for (size_t c = 0; c < 4; ++c) mean += (g[4 * r + c] * g[4 * r + c] + 1e-30) / 4.0;
      row[r] = decay * row[r] + (1.0 - decay) * mean;
    }
    for (size_t c = 0; c < 4; ++c) {
      double mean = 0.0;
      for (size_t r = 0; r < 3; ++r) mean += (g[4 * r + c] * g[4 * r + c] + 1e-30) / 3.0;
      column[c] = decay * column[c] + (1.0 - decay) * mean;
    }
    const double row_mean = (row[0] + row[1] + row[2]) / 3.0;
    std::vector<double> update(12);
    for (size_t i = 0; i < 12; ++i)
      update[i] = g[i] / std::sqrt(row[i / 4] * column[i % 4] / row_mean);
    const double cap = std::max(1.0, rms(update));
    const double scale = std::max(1e-3, rms(w));
    for (size_t i = 0; i < 12; ++i) {
      m[i] = 0.9 * m[i] + 0.1 * update[i] / cap;
      w[i] -= 0.1 * scale * m[i];
    }
  }
  trial.run(gradients);
  require_close(trial.parameter, w);
  require_close(trial.slots[0], row);
  require_close(trial.slots[1], column);
}

TEST_CASE("Adafactor keeps the full second moment of small tensors") {
  OptimizerTrial trial{.optimizer_tpl = Adafactor::HParams{.multiply_by_parameter_scale = false},
                       .type = kMatrix,
                       .parameter = some_numbers(12, 7)};
  const std::vector<double> before = trial.parameter;
  const std::vector<double> g = some_numbers(12, 1);
  trial.run({g});
  REQUIRE(trial.slots.size() == 1);
  // The first step's second moment is the squared gradient, so the update is its sign: RMS 1.
  for (size_t i = 0; i < 12; ++i)
    REQUIRE(trial.parameter[i] ==
            Approx(before[i] - 0.1 * (g[i] > 0.0 ? 1.0 : -1.0)).margin(kTolerance));
}

TEST_CASE("Adafactor with Adam's decay averages squared gradients without bias") {
  OptimizerTrial trial{.optimizer_tpl = Adafactor::HParams{.decay_adam = 0.5},
                       .type = kMatrix,
                       .parameter = some_numbers(12, 7)};
  const auto gradients = three_gradients(12);
  trial.run(gradients);
  // Weights of a mean whose decay is 0.5: 1 : 2 : 4, from the oldest.
  std::vector<double> expected(12);
  for (size_t i = 0; i < 12; ++i)
    for (size_t step = 0; step < 3; ++step)
      expected[i] += gradients[step][i] * gradients[step][i] * std::pow(2.0, step) / 7.0;
  require_close(trial.slots[0], expected);
}

TEST_CASE("a step that is not applied changes neither parameter nor state") {
  const std::vector<Template<BaseOptimizer>> optimizers = {
      AdamW::HParams{},
      Adam::HParams{},
      Adam::HParams{.clip_threshold = 0.0},
      Sgd::HParams{.momentum = 0.9},
      Adafactor::HParams{.beta1 = 0.9, .min_dim_size_to_factor = 2},
      AdamW::HParams{.amsgrad = true},
      Lion::HParams{},
      Lamb::HParams{},
      Adagrad::HParams{},
      RmsProp::HParams{.momentum = 0.9, .centered = true},
      ScheduleFreeAdamW::HParams{}};
  for (const auto& optimizer_tpl : optimizers) {
    INFO(optimizer_tpl.name());
    OptimizerTrial trial{.optimizer_tpl = optimizer_tpl,
                         .type = kMatrix,
                         .parameter = some_numbers(12, 7),
                         .weight_decay = 0.1};
    const std::vector<double> before = trial.parameter;
    std::vector<double> bad = some_numbers(12, 1);
    bad[5] = std::nan("");
    trial.run({bad, bad}, false);
    require_close(trial.parameter, before);
    if (!trial.average.empty()) require_close(trial.average, before);
    for (const auto& slot : trial.slots) require_close(slot, std::vector<double>(slot.size(), 0.0));
  }
}

TEST_CASE("optimizers reject inconsistent settings") {
  const auto message = [](const Template<BaseOptimizer>& optimizer_tpl) {
    try {
      optimizer_tpl.instantiate();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  REQUIRE_THAT(message(AdamW::HParams{.beta2 = 1.0}), Catch::Contains("beta2 is 1.0, expected"));
  REQUIRE_THAT(message(Adam::HParams{.beta1 = -0.1}), Catch::Contains("beta1 is -0.1, expected"));
  REQUIRE_THAT(message(Sgd::HParams{.nesterov = true}), Catch::Contains("set momentum"));
  REQUIRE_THAT(message(Adafactor::HParams{.decay_exponent = 0.0}),
               Catch::Contains("decay_exponent is 0"));
  REQUIRE_THAT(message(Adafactor::HParams{.decay_adam = 1.0}),
               Catch::Contains("decay_adam is 1.0, expected"));
}

TEST_CASE("optimizers reject negative and non-finite settings") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto message = [](const Template<BaseOptimizer>& optimizer_tpl) {
    try {
      optimizer_tpl.instantiate();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  REQUIRE_THAT(message(AdamW::HParams{.learning_rate = -1.0}),
               Catch::StartsWith("AdamW: learning_rate is -1.0, expected at least 0"));
  REQUIRE_THAT(
      message(Adam::HParams{.learning_rate = -std::nan("")}),
      Catch::StartsWith("Adam: learning_rate is nan, expected a finite number (at most 3.4e38)"));
  REQUIRE_THAT(message(Sgd::HParams{.learning_rate = kInfinity}), Catch::Contains("is inf"));
  REQUIRE_THAT(message(Adafactor::HParams{.learning_rate = 1e39}), Catch::Contains("is 1e+39"));
  REQUIRE_THAT(message(Sgd::HParams{.momentum = std::nan("")}), Catch::Contains("momentum is nan"));
  REQUIRE_THAT(message(AdamW::HParams{.epsilon = std::nan("")}), Catch::Contains("epsilon is nan"));
  REQUIRE_THAT(message(AdamW::HParams{.weight_decay = -0.1}), Catch::Contains("weight_decay is"));
  REQUIRE_THAT(message(Adam::HParams{.epsilon_root = -1.0}), Catch::Contains("epsilon_root is -1"));
  REQUIRE_THAT(message(Adafactor::HParams{.epsilon1 = -1.0}), Catch::Contains("epsilon1 is -1"));
}

}  // namespace
}  // namespace tessera
