// SPDX-License-Identifier: Apache-2.0
#include "tasks/testing/tested_optimizer.h"

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"

namespace tessera {

TestedOptimizer::TestedOptimizer(const Template<BaseOptimizer>& optimizer_tpl,
                                 OptimizerSetting setting)
    : setting_(std::move(setting)),
      optimizer_(optimizer_tpl.instantiate()),
      mesh_(planned_mesh(setting_.mesh, 1)) {
  if (setting_.type.empty())
    setting_.type = fmt::format("f32[\"embed={}\"]", setting_.weight.size());
  const std::string& path = setting_.path;
  const AxisRules rules = make_rules(setting_.rules);
  const TraceScope trace(graph_, mesh_, rules);
  const PathScope where(path);
  const Type type = apply_rules(rules.weights, mesh_, parse_type(setting_.type));
  const Parameter declared{.path = path, .type = type, .init = {}, .fans = setting_.fans};
  const BaseOptimizer& optimizer = optimizer_->for_parameter(declared);
  const auto scalar = [](const std::string& name) {
    return input(name, InputKind::kScalar, make_type(DType::kF32, {}));
  };
  UpdateInputs inputs{
      .path = path,
      .parameter = input(path, InputKind::kParameter, type),
      .gradient = input("gradient", InputKind::kBatch, type),
      .gradient_scale = constant(1.0, DType::kF32),
      .learning_rate = learning_rate_of(optimizer, *optimizer_, scalar("learning rate")),
      .count = scalar("count"),
      .apply = less(constant(0.0, DType::kF32), constant(1.0, DType::kF32)),
      .weight_decay = optimizer.weight_decay(),
      .matrix = matrix_axes(declared).value_or(FanAxes{})};
  const std::vector<Slot> slots = checked_slots(optimizer, {path, type, inputs.matrix});
  state_[path] = setting_.weight;
  for (const Slot& slot : slots) {
    inputs.slots.push_back(input("slot " + slot.name, InputKind::kState, slot.type));
    state_["slot " + slot.name].resize(static_cast<size_t>(slot.type.elements()));
  }
  if (optimizer.averages()) {
    inputs.average = input("average", InputKind::kState, type);
    state_["average"] = setting_.weight;
  }
  if (optimizer.reads_drawn_gradient()) {
    inputs.drawn_gradient = inputs.gradient;
    inputs.drawn_labels = constant(64.0, DType::kF32);
  }
  const Updated next = checked_update(optimizer, inputs);
  graph_.add_update(path, next.parameter.id());
  if (next.average.valid()) graph_.add_update("average", next.average.id());
  for (size_t i = 0; i < slots.size(); ++i)
    graph_.add_update("slot " + slots[i].name, next.slots[i].id());
}

void TestedOptimizer::step(const std::vector<double>& gradient) {
  ReferenceInputs values = state_;
  values["gradient"] = gradient;
  values["learning rate"] = {optimizer_->learning_rate(steps_, setting_.num_train_steps)};
  values["count"] = {static_cast<double>(steps_++)};
  for (auto& [name, array] : evaluate(graph_, values, mesh_)) state_[name] = array.values;
}

const std::vector<double>& TestedOptimizer::slot(const std::string& name) const {
  const auto found = state_.find("slot " + name);
  if (found == state_.end()) fail("the optimizer has no slot '{}'", name);
  return found->second;
}

}  // namespace tessera
