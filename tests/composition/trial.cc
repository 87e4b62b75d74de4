// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <utility>

#include "core/base/error.h"
#include "core/compile/remat/remat.h"
#include "core/devices/reference/array.h"
#include "core/runtime/comm/communicator.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/session/step_programs.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

constexpr int64_t kSteps = 2;  // The second one uses the state of the first.
constexpr uint64_t kWeightSeed = 1234;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

void add_scalars(const std::string& step, const StepResult& result, RunNumbers& numbers) {
  const auto add = [&](const std::string& name, double value) { numbers[step + name] = {value}; };
  add("loss", result.loss);
  add("grad_norm", result.grad_norm);
  add("applied", result.applied ? 1.0 : 0.0);
  for (const auto& [name, value] : result.metrics) add("metric " + name, value);
  for (const auto& [name, value] : result.parameter_norms) add(name, value);
}

// The number of parts of the state that differ from another device's copy.
double differing_copies(Executor& executor) {
  double differing = 0.0;
  for (const Buffer& buffer : executor.persistent()) {
    std::map<std::vector<int64_t>, std::vector<std::byte>> first;  // By the origin of the block.
    for (const Shard& shard : executor.shards_to_read(buffer.name)) {
      std::vector<std::byte> bytes;
      shard.memory.map(HostAccess::kRead, [&](std::span<std::byte> memory) {
        bytes.assign(memory.begin(), memory.end());
      });
      const auto [found, is_new] = first.try_emplace(shard.block.origin, bytes);
      differing += !is_new && found->second != bytes ? 1.0 : 0.0;
    }
  }
  return differing;
}

void add_state(const std::string& step, const Executor& executor, RunNumbers& numbers) {
  for (const Buffer& buffer : executor.persistent()) {
    if (!is_floating(buffer.type.dtype)) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(buffer.type.bytes()));
    executor.read_state(buffer.name, bytes);
    numbers[step + buffer.name] = decode_values(buffer.type, bytes.data());
  }
}

double norm_of(const std::vector<double>& values) {
  double square = 0.0;
  for (const double value : values) square += value * value;
  return std::sqrt(square);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return kInfinite;
  double square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(square);
}

// Numbers of one kind are comparable: "step 0: learner/m/" or "step 0: gradient_norm/".
std::string kind_of(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? name.substr(0, name.find(": ")) : name.substr(0, slash);
}

// A key bias adds the same constant to all scores of a query, which without rotary embeddings does
// not change the softmax: its gradient is only rounding errors, of the size of the whole gradient's
// before clipping.
bool vanishes(const std::string& name) { return name.ends_with(".key_bias"); }

double gradient_norm_in(const std::string& name, const RunNumbers& numbers) {
  const auto found = numbers.find(name.substr(0, name.find(": ")) + ": grad_norm");
  return found != numbers.end() ? found->second.front() : 0.0;
}

// What differs only in names and numbers is one kind of refusal.
std::string kind_of_refusal(const std::string& message) {
  std::string text = message.substr(0, message.find(" [in "));
  text = std::regex_replace(text, std::regex("^[a-z_/]+\\.cc:[0-9]+: "), "");
  text = std::regex_replace(text, std::regex("\"[^\"]*\"|'[^']*'|lm\\.[a-z0-9_.\\[\\]]+"), "…");
  text = std::regex_replace(text, std::regex("(\\*?\\b(replica|data|mdl)\\b)+"), "axes");
  return std::regex_replace(text, std::regex("[0-9]+"), "#");
}

// Rounding to fewer bits, and a choice of experts that depends on it, differ between meshes: only
// losses are compared then.
bool compares_losses(const Composition& composition) {
  return std::ranges::any_of(composition.features, [](const std::string& name) {
    const std::string_view group = feature(name).group;
    return group == "dtypes" || group == "experts" || name == "bf16_state";
  });
}

RunNumbers losses_of(const RunNumbers& numbers) {
  RunNumbers losses;
  for (const auto& [name, values] : numbers)
    if (name.ends_with(": loss")) losses[name] = values;
  return losses;
}

RunNumbers run(const TracedStep& step, Numerics numerics) {
  const int64_t devices = step.mesh.num_devices();
  const auto owned = make_test_devices(devices, 1);
  const auto communicator = make_test_communicator(
      {.local_devices = devices, .transport = nullptr, .timeout = std::chrono::minutes(2)});
  Executor executor(pointers(owned), *communicator);
  const int program = executor.add_program(step.graph, step.options(numerics));
  executor.allocate();
  return run_steps(executor, program, step);
}

}  // namespace

TracedStep traced(const Composition& composition, Place place) try {
  TracedStep step{.model = model_of(composition, place == Place::kMesh)};
  const CompositionModel& model = step.model;
  step.task = Template<BaseTask>(model.task).instantiate();
  step.pipeline =
      model_pipeline(step.task->train(), step.task->model().parameters(), model.rules, model.mesh);
  step.mesh = step.pipeline ? with_pieces(model.mesh, *step.pipeline) : model.mesh;
  step.graph = step.task->train_graph({step.mesh, model.rules, specification_of(model.batch(0))});
  return step;
} catch (const Error& error) {
  if (place == Place::kOneDevice) throw;
  throw Refused{error.what()};
}

CompileOptions TracedStep::options(Numerics numerics) const {
  CompileOptions options;
  options.mesh = mesh;
  if (pipeline) options.pipeline = table_for(*pipeline, graph);
  options.remat = parse_remat_policy(task->train().remat_policy);
  options.numerics = numerics;
  options.verify_passes = numerics == Numerics::kStandard;  // The passes of f64 are the same.
  return options;
}

RunNumbers run_steps(Executor& executor, int program, const TracedStep& step, int64_t draw) {
  initialise_state(executor, step.task->model().parameters(),
                   kWeightSeed + static_cast<uint64_t>(draw), 1);
  TrainProgram train(executor, program, *step.task);
  RunNumbers numbers;
  for (int64_t i = 0; i < kSteps; ++i) {
    const std::string name = fmt::format("step {}: ", i);
    add_scalars(name, train.run(step.model.batch(draw * kSteps + i), i), numbers);
    add_state(name, executor, numbers);
    numbers[name + "copies that differ"] = {differing_copies(executor)};
  }
  return numbers;
}

Difference difference(const RunNumbers& got, const RunNumbers& expected) {
  std::map<std::string, double> largest;
  for (const auto& [name, values] : expected) {
    double& norm = largest[kind_of(name)];
    norm = std::max(norm, norm_of(values));
  }
  Difference result;
  if (got.size() != expected.size()) return {kInfinite, "the number of numbers"};
  for (const auto& [name, values] : expected) {
    const auto found = got.find(name);
    if (found == got.end()) return {kInfinite, name};
    const double apart = distance(found->second, values);
    if (apart == 0.0) continue;
    double least = 1e-3 * largest[kind_of(name)];
    if (vanishes(name)) least = std::max(least, 1e-3 * gradient_norm_in(name, expected));
    const double error = apart / std::max(norm_of(values), least);
    if (!std::isfinite(error)) return {kInfinite, name};
    if (error > result.error) result = {error, name};
  }
  return result;
}

bool Verdict::fails() const {
  return error || f64.error > kF64Tolerance || standard.error > tolerance;
}

std::string Verdict::text() const {
  if (error) return "failed: " + *error;
  return refusal ? "refused: " + *refusal
                 : fmt::format("f64 {:.1e} ({}), standard {:.1e} of {:.0e} ({})", f64.error,
                               f64.name, standard.error, tolerance, standard.name);
}

Verdict verdict_on(const Composition& composition) {
  const bool only_losses = compares_losses(composition);
  Verdict verdict{.tolerance = only_losses ? 0.05 : 1e-3};
  try {
    const TracedStep on_mesh = traced(composition, Place::kMesh);
    const TracedStep on_one = traced(composition, Place::kOneDevice);
    const auto select = [&](const RunNumbers& all) { return only_losses ? losses_of(all) : all; };
    verdict.f64 = difference(run(on_mesh, Numerics::kF64), run(on_one, Numerics::kF64));
    verdict.standard = difference(select(run(on_mesh, Numerics::kStandard)),
                                  select(run(on_one, Numerics::kStandard)));
  } catch (const Refused& refused) {
    verdict.refusal = kind_of_refusal(refused.message);
  } catch (const Error& error) {
    verdict.error = error.what();
  }
  return verdict;
}

}  // namespace tessera
