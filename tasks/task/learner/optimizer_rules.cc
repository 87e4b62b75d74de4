// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/optimizer_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/error.h"

namespace tessera {

MultiOptimizer::MultiOptimizer(const Template<BaseOptimizer>& others,
                               const std::vector<OptimizerRule>& rules,
                               const std::vector<LearningRateRule>& multipliers) {
  if (!others.has() && rules.empty())
    fail("learner.optimizer_tpl is unset, and there are no optimizer_rules; give it a class");
  const auto add = [&](const std::string& name, const Template<BaseOptimizer>& optimizer_tpl) {
    const std::string suffix = all_.empty() ? "" : "/" + name;
    all_.push_back({name, optimizer_tpl.instantiate(), std::string(names::kLearningRate) + suffix});
  };
  if (others.has()) add("", others);
  for (size_t i = 0; i < rules.size(); ++i) {
    const auto& [name, paths, optimizer_tpl] = rules[i];
    if (name.empty() || name.find('/') != std::string::npos ||
        std::ranges::find(all_, name, &Named::name) != all_.end())
      fail(
          "learner.optimizer_rules[{}].name is '{}', expected a name without '/' that no other "
          "rule has: the learning rate is logged as learning_rate/<name>",
          i, name);
    if (!optimizer_tpl.has())
      fail("learner.optimizer_rules[{}].optimizer_tpl is unset; give it a class", i);
    rules_.add(paths);
    add(name, optimizer_tpl);
  }
  for (const Named& each : all_)
    if (const int64_t own = each.optimizer->interval(); own > 1 && own != interval())
      fail(
          "learner: one optimizer renews its state every {} steps and another every {}; expected "
          "one interval",
          own, interval());
  for (const LearningRateRule& each : multipliers) {
    multiplier_rules_.add(each.paths);
    multipliers_.push_back(each.multiplier);
  }
}

size_t MultiOptimizer::index_of(std::string_view path) const {
  const auto rule = rules_.find(path);
  return rule ? *rule + (all_[0].name.empty() ? 1 : 0) : 0;
}

double MultiOptimizer::multiplier(std::string_view path) const {
  const auto rule = multiplier_rules_.find(path);
  return rule ? multipliers_[*rule] : 1.0;
}

bool MultiOptimizer::averages() const {
  return std::ranges::any_of(all_, [](const Named& each) { return each.optimizer->averages(); });
}

bool MultiOptimizer::reads_drawn_gradient() const {
  return std::ranges::any_of(
      all_, [](const Named& each) { return each.optimizer->reads_drawn_gradient(); });
}

int64_t MultiOptimizer::interval() const {
  int64_t longest = 1;
  for (const Named& each : all_) longest = std::max(longest, each.optimizer->interval());
  return longest;
}

void MultiOptimizer::check(const ParameterTable& table,
                           const std::vector<std::string>& trained) const {
  rules_.check(table);
  multiplier_rules_.check(table);
  if (all_[0].name.empty()) return;
  std::vector<std::string> without;
  std::ranges::copy_if(trained, std::back_inserter(without),
                       [&](const std::string& path) { return !rules_.find(path); });
  if (!without.empty())
    fail(
        "learner.optimizer_rules: no rule matches {}, and optimizer_tpl is unset; add a rule, or "
        "set optimizer_tpl, the optimizer of weights without one",
        few_names(without));
}

std::string MultiOptimizer::rates_text(int64_t num_train_steps) const {
  constexpr int64_t kRows = 10, kWidth = 50;
  std::string text;
  for (const auto& [rule, optimizer, input] : all_) {
    text += fmt::format("Learning rate by step{}\n", rule.empty() ? "" : ", rule " + rule);
    const int64_t last = std::max<int64_t>(num_train_steps - 1, 0);
    std::map<int64_t, double> rates = {{std::min(optimizer->warmup_steps(), last), 0.0}};
    for (int64_t i = 0; i <= kRows; ++i) rates[last * i / kRows] = 0.0;
    double peak = 0.0;
    for (auto& [step, rate] : rates)
      peak = std::max(peak, rate = optimizer->learning_rate(step, num_train_steps));
    double shown = -1.0;
    for (const auto& [step, rate] : rates) {
      if (rate == std::exchange(shown, rate) && step != last) continue;
      text += fmt::format("{:>10}  {:<10.4g}{:#<{}}\n", step, rate, "",
                          peak > 0.0 ? std::lround(kWidth * rate / peak) : 0);
    }
  }
  return text;
}

}  // namespace tessera
