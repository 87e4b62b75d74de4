// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/modes/selfcheck.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "core/base/seconds.h"
#include "core/check/op_cases.h"
#include "core/graph/mesh.h"
#include "core/runtime/executor/executor.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "layers/norms/norms.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// The cases by family, families in order of first appearance.
std::vector<std::pair<std::string, std::vector<OpCase>>> cases_by_family() {
  std::vector<std::pair<std::string, std::vector<OpCase>>> families;
  for (OpCase& row : all_op_cases()) {
    const std::string name = family_of(row);
    auto family = std::find_if(families.begin(), families.end(),
                               [&](const auto& each) { return each.first == name; });
    if (family == families.end()) family = families.insert(families.end(), {name, {}});
    family->second.push_back(std::move(row));
  }
  return families;
}

std::unique_ptr<Device> checked_device(const SelfcheckOptions& options, int threads) {
  std::unique_ptr<Device> device = options.make_device(threads);
  device->reject_mismatches();
  return device;
}

std::string check_kernels(const SelfcheckOptions& options, Device& device) {
  for (const auto& [family, rows] : cases_by_family()) {
    const Clock::time_point begin = Clock::now();
    const auto [cases, error, problems] = check_cases(rows, device);
    if (!problems.empty()) return problems.front();
    options.report(
        fmt::format("{:<20} {:>4} cases, largest error {:.2f} of its tolerance, {:.1f} s", family,
                    cases, error, seconds_since(begin)));
  }
  return "";
}

// Compares the same steps on one thread, on several, and on several again.
std::string check_steps(const SelfcheckOptions& options) {
  const int several = std::max(2, options.threads);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Clock::time_point begin = Clock::now();
    const auto steps_on = [&](int threads) {
      return selfcheck_steps(*checked_device(options, threads), dtype);
    };
    const StepBits one = steps_on(1);
    const std::string name = fmt::format("training steps in {}", dtype_name(dtype));
    for (const double value : one.losses)
      if (!std::isfinite(value)) return fmt::format("{}: the loss is {}", name, value);
    std::string difference = bit_difference(steps_on(1), one);
    if (!difference.empty()) return fmt::format("{}, run twice on 1 thread: {}", name, difference);
    for (const std::string again : {"", ", run again"}) {
      difference = bit_difference(steps_on(several), one);
      if (!difference.empty())
        return fmt::format("{} on {} threads{}, against 1 thread: {}", name, several, again,
                           difference);
    }
    options.report(fmt::format("{:<24}  the same bits on 1 and {} threads, and run twice, {:.1f} s",
                               name, several, seconds_since(begin)));
  }
  return "";
}

constexpr int64_t kSteps = 2;  // The second one starts from updated weights.

// Sizes that no vector length and no number of threads divides, large enough for kernels to use
// several threads.
SingleTask::HParams small_task(DType compute) {
  const TransformerBlock::HParams block{
      .attention_tpl =
          DotProductAttention::HParams{.num_kv_heads = 2,
                                       .dims_per_head = 12,
                                       .rotary_tpl = RotaryPositionEmbedding::HParams{}},
      .ffn_tpl =
          FeedForward::HParams{
              .activation_tpl = SiLU::HParams{}, .use_gated_activation = true, .dropout_rate = 0.2},
      .norm_tpl = RmsNorm::HParams{},
      .residual_dropout_rate = 0.1};
  const LanguageModel::HParams model{
      .lm_tpl = TransformerLm::HParams{
          .vocab_size = 307,
          .model_dims = 72,
          .num_layers = 2,
          .num_heads = 6,
          .hidden_dims = 168,
          .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
          .params_init = WeightInit{InitKind::kGaussian, 0.1}}};
  return {.dtypes = DTypePolicy{.compute = compute},
          .model = model,
          .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = 1e-2},
                      .clip_gradient_norm_to_value = 0.1},
          .train = {.num_train_steps = kSteps}};
}

}  // namespace

std::string selfcheck(const SelfcheckOptions& options) {
  const Clock::time_point begin = Clock::now();
  {
    const std::unique_ptr<Device> device = checked_device(options, options.threads);
    options.report("checking " + device->description());
    std::string problem = check_kernels(options, *device);
    if (!problem.empty()) return problem;
  }
  std::string problem = check_steps(options);
  if (problem.empty()) options.report(fmt::format("passed ({:.1f} s)", seconds_since(begin)));
  return problem;
}

StepBits selfcheck_steps(Device& device, DType compute) {
  const std::unique_ptr<BaseTask> task = Template<BaseTask>(small_task(compute)).instantiate();
  SyntheticInput input({.task = SyntheticTask::kGaussians,
                        .global_batch_size = 6,
                        .seq_len = 88,
                        .num_letters = 290,
                        .score_all = true});
  input.attach({});
  CompileOptions options;
  options.mesh = Mesh::standard({1, 1, 1});
  Executor executor(device);
  const int program = executor.add_program(
      task->train_graph({options.mesh, make_rules({}), input.specification()}), options);
  executor.allocate();
  const ParameterTable& table = task->model().parameters();
  initialise_state(executor, table, 1, 1);

  TrainProgram train(executor, program, *task);
  StepBits bits;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepResult result = train.run(*input.get_next(), step);
    bits.losses.push_back(result.loss);
    bits.gradient_norms.push_back(result.grad_norm);
  }
  for (const Parameter& each : table.parameters()) {
    std::vector<std::byte>& bytes = bits.weights[each.path];
    bytes.resize(static_cast<size_t>(each.type.bytes()));
    executor.read_state(each.path, bytes);
  }
  return bits;
}

std::string bit_difference(const StepBits& got, const StepBits& expected) {
  const auto differ = [](double a, double b) { return std::memcmp(&a, &b, sizeof(a)) != 0; };
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    if (differ(got.losses[step], expected.losses[step]))
      return fmt::format("the loss of step {}: got {}, expected {}", step + 1, got.losses[step],
                         expected.losses[step]);
    if (differ(got.gradient_norms[step], expected.gradient_norms[step]))
      return fmt::format("the gradient norm of step {}: got {}, expected {}", step + 1,
                         got.gradient_norms[step], expected.gradient_norms[step]);
  }
  for (const auto& [path, bytes] : expected.weights) {
    const std::vector<std::byte>& others = got.weights.at(path);
    for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
      float one = 0.0f, other = 0.0f;
      std::memcpy(&one, &bytes[i], sizeof(float));
      std::memcpy(&other, &others[i], sizeof(float));
      if (std::memcmp(&one, &other, sizeof(float)) != 0)
        return fmt::format("weight {} after {} steps, element {}: got {}, expected {}", path,
                           expected.losses.size(), i / sizeof(float), other, one);
    }
  }
  return "";
}

}  // namespace tessera
