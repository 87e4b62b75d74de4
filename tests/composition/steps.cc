// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/steps.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/compile/remat/remat.h"
#include "core/devices/reference/array.h"
#include "tests/support/train_trial.h"

namespace tessera {
namespace {

// How far the bytes that are sent may be from the plan, which rounds an average down for each
// collective: three devices, or eight with twelve elements, exchange parts that are not equally
// large.
constexpr double kSlack = 1e-2;

void add_scalars(const std::string& step, const StepResult& result, RunNumbers& numbers) {
  const auto add = [&](const std::string& name, double value) { numbers[step + name] = {value}; };
  add("loss", result.loss);
  add("grad_norm", result.grad_norm);
  add("applied", result.applied ? 1.0 : 0.0);
  for (const auto& [name, value] : result.metrics) add("metric " + name, value);
  for (const auto& [name, value] : result.parameter_norms) add(name, value);
}

void add_state(const std::string& step, const Executor& executor, RunNumbers& numbers) {
  for (const Buffer& buffer : executor.persistent()) {
    if (!is_floating(buffer.type.dtype)) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(buffer.type.bytes()));
    executor.read_state(buffer.name, bytes);
    numbers[step + buffer.name] = decode_values(buffer.type, bytes.data());
  }
}

void check_batch(const Batch& after, const Batch& before, RunNumbers& numbers) {
  for (const auto& [name, array] : before)
    if (after.at(name).bytes != array.bytes) numbers["a field that the step changed: " + name];
}

}  // namespace

TracedStep traced(CompositionModel model) {
  TracedStep step{.model = std::move(model)};
  step.task = Template<BaseTask>(step.model.task).instantiate();
  step.pipeline = model_pipeline(step.task->train(), step.task->model().parameters(),
                                 step.model.rules, step.model.mesh);
  step.mesh = step.pipeline ? with_pieces(step.model.mesh, *step.pipeline) : step.model.mesh;
  step.graph = step.task->train_graph({.mesh = step.mesh,
                                       .rules = step.model.rules,
                                       .batch = specification_of(step.model.batch(0)),
                                       .renews = true});
  return step;
}

std::vector<std::string> differing_copies(const Executor& executor) {
  std::vector<std::string> names;
  for (const Buffer& buffer : executor.persistent()) {
    std::vector<std::pair<Region, std::vector<std::byte>>> blocks;
    bool differs = false;
    for (const Shard& shard : executor.shards_to_read(buffer.name)) {
      std::vector<std::byte> bytes;
      shard.memory.map(HostAccess::kRead, [&](std::span<std::byte> memory) {
        bytes.assign(memory.begin(), memory.end());
      });
      const auto found = std::ranges::find_if(
          blocks, [&](const auto& block) { return block.first == shard.block; });
      if (found == blocks.end())
        blocks.emplace_back(shard.block, std::move(bytes));
      else
        differs = differs || found->second != bytes;
    }
    if (differs) names.push_back(buffer.name);
  }
  return names;
}

CompileOptions compile_options(const TracedStep& step, Numerics numerics) {
  CompileOptions options;
  options.mesh = step.mesh;
  if (step.pipeline) options.pipeline = table_for(*step.pipeline, step.graph);
  options.remat = parse_remat_policy(step.task->train().remat_policy);
  options.numerics = numerics;
  return options;
}

RunNumbers numbers_of_steps(const TracedStep& step, const Executor& executor,
                            const TrainStep& train, int64_t steps, int64_t first_batch) {
  RunNumbers numbers;
  add_state(std::string(kStart), executor, numbers);
  for (int64_t i = 0; i < steps; ++i) {
    const std::string name = fmt::format("step {}: ", i);
    const Batch batch = step.model.batch(first_batch + i);
    add_scalars(name, train(batch, i), numbers);
    check_batch(batch, step.model.batch(first_batch + i), numbers);
    add_state(name, executor, numbers);
  }
  for (const std::string& name : differing_copies(executor)) numbers["copies that differ: " + name];
  return numbers;
}

RunNumbers run_steps(const TracedStep& step, Numerics numerics, int64_t steps) {
  const bool is_standard = numerics == Numerics::kStandard;
  TrainTrial trial(*step.task, step.graph,
                   {.mesh = step.mesh,
                    .pipeline = step.pipeline,
                    .numerics = numerics,
                    .verify_passes = is_standard});  // The passes of f64 are the same.
  const auto train = [&](const Batch& batch, int64_t i) { return trial.step(batch, i); };
  RunNumbers numbers = numbers_of_steps(step, trial.executor(), train, steps);
  if (is_standard && !step.pipeline && !trial.sent_as_planned(steps, kSlack))
    numbers["bytes sent that were not planned"];
  return numbers;
}

}  // namespace tessera
