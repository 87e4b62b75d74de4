// SPDX-License-Identifier: Apache-2.0
#include "tests/support/optimizer_trial.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/base/random.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/device.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/runtime/executor/executor.h"
#include "layers/parameter.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/trial.h"

namespace tessera {

void OptimizerTrial::run(const std::vector<std::vector<double>>& gradients, bool apply) {
  const std::unique_ptr<BaseOptimizer> optimizer = optimizer_tpl.instantiate();
  std::vector<Slot> declared;
  const Mesh mesh;
  const AxisRules rules;
  const Type scalar = make_type(DType::kF32, {});
  Graph graph;
  {
    const TraceScope trace(graph, mesh, rules);
    UpdateInputs inputs;
    const Parameter weight{.path = "w", .type = type, .init = {}, .fans = fans};
    const BaseOptimizer& part = optimizer->for_parameter(weight);
    inputs.matrix = matrix_axes(weight).value_or(FanAxes{});
    declared = part.slots({"w", type, inputs.matrix});
    inputs.parameter = input("w", InputKind::kParameter, type);
    for (const Slot& slot : declared)
      inputs.slots.push_back(input(slot.name, InputKind::kState, slot.type));
    inputs.gradient = input("gradient", InputKind::kBatch, type);
    inputs.gradient_scale = input("scale", InputKind::kScalar, scalar);
    inputs.learning_rate = input("learning_rate", InputKind::kScalar, scalar);
    inputs.count = input("count", InputKind::kScalar, scalar);
    inputs.apply = less(constant(0.0, DType::kF32), input("apply", InputKind::kScalar, scalar));
    inputs.weight_decay = weight_decay;
    if (optimizer->averages()) inputs.average = input("average", InputKind::kState, type);
    if (optimizer->reads_drawn_gradient()) {  // In every step.
      inputs.drawn_gradient = inputs.gradient;
      inputs.drawn_labels = constant(64.0, DType::kF32);
    }
    const Updated updated = part.update(inputs);
    if (updated.average.valid()) graph.add_update("average", updated.average.id());
    graph.add_update("w", updated.parameter.id());
    for (size_t i = 0; i < declared.size(); ++i)
      graph.add_update(declared[i].name, updated.slots[i].id());
  }
  const std::unique_ptr<Device> device = make_reference_device();
  Executor executor(*device);
  const int program = executor.add_program(graph, {.mesh = mesh});
  executor.allocate();

  const auto bytes_of = [](const Type& t, const std::vector<double>& values) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes()));
    encode_values(t.dtype, values, bytes.data());
    return bytes;
  };
  executor.write_state("w", bytes_of(type, parameter));
  if (optimizer->averages()) executor.write_state("average", bytes_of(type, parameter));
  for (size_t step = 0; step < gradients.size(); ++step) {
    const auto write = [&](const char* name, double value) {
      executor.write_input(program, name, bytes_of(scalar, {value}));
    };
    executor.write_input(program, "gradient", bytes_of(type, gradients[step]));
    write("scale", gradient_scale);
    write("learning_rate", learning_rates.empty() ? learning_rate : learning_rates.at(step));
    // Inputs that the program does not read have no placement.
    for (const Placement& input : executor.plan(program).inputs)
      if (input.name == "count") write("count", static_cast<double>(step));
    write("apply", apply ? 1.0 : 0.0);
    executor.run(program);
  }
  const auto read = [&](const std::string& name, const Type& t) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes()));
    executor.read_state(name, bytes);
    return decode_values(t, bytes.data());
  };
  parameter = read("w", type);
  if (optimizer->averages()) average = read("average", type);
  slots.clear();
  for (const Slot& slot : declared) slots.push_back(read(slot.name, slot.type));
}

std::vector<double> some_numbers(int64_t count, uint64_t seed) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(2.0 * uniform_from_bits(philox(seed, static_cast<uint64_t>(i), 0)[0]) - 1.0);
  return numbers;
}

}  // namespace tessera
