// SPDX-License-Identifier: Apache-2.0
#include "tasks/train/train_session.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "core/graph/type.h"
#include "tasks/run_directory/run_config.h"
#include "tasks/session/check_rules.h"
#include "tasks/session/program_io.h"
#include "tasks/train/loop_state.h"

namespace tessera {
namespace {

constexpr std::string_view kVocabAxis = "vocab";

// The smallest batch that the mesh can hold: one copy of the example per shard of the batch axis.
Batch copies_of_one_example(const TraceSetting& setting, const BaseInput& input) {
  const Type batch = apply_rules(setting.rules.activations, setting.mesh,
                                 make_type(DType::kI32, {{"batch", 0, {}}}));
  Batch specification = input.specification();
  for (auto& [name, array] : specification)
    array.shape[0] = setting.mesh.size_along(batch.axes[0].split);
  return specification;
}

const std::filesystem::path& directory_of_inputs(const SessionOptions& options) {
  return options.input_directory.empty() ? options.run_directory : options.input_directory;
}

}  // namespace

Session::Session(const ExperimentConfig& config, const SessionOptions& options,
                 const std::vector<Device*>& devices, ProcessGroup& processes)
    : ModelSession(config, options.allocates ? Purpose::kRunning : Purpose::kPlanning, devices,
                   options.devices, processes) {
  open_inputs(config, options);
  compile(config, options);
  processes_.barrier("compiling the step");
}

// The rows of a global batch that this process's devices hold.
Infeed Session::infeed(int64_t global_batch_size, const SessionOptions& options) const {
  Infeed infeed{.infeed_host_index = processes_.rank(),
                .num_infeed_hosts = processes_.size(),
                .run_directory = directory_of_inputs(options),
                // Only process 0 may create a corpus snapshot.
                .run_begun = !processes_.is_first() || run_has_begun(options.run_directory)};
  const Type batch = apply_rules(rules_.activations, mesh_,
                                 make_type(DType::kI32, {{"batch", global_batch_size, {}}}));
  if (const auto problem = type_problem(batch, mesh_)) fail("global_batch_size: {}", *problem);
  if (options.allocates) {
    const int64_t first = processes_.rank() * options.devices;
    infeed.rows = rows_of(batch, mesh_, first, options.devices);
  }
  return infeed;
}

OpenedInput Session::open_input(const Template<BaseInput>& input_tpl, const std::string& where,
                                const SessionOptions& options) {
  const ErrorContext context(where);
  std::unique_ptr<BaseInput> input = input_tpl.instantiate();
  const Infeed rows = infeed(input->global_batch_size(), options);
  if (options.allocates) input->attach(rows);  // A plan needs no data.
  return {std::move(input), rows.rows, options.allocates};
}

void Session::open_inputs(const ExperimentConfig& config, const SessionOptions& options) {
  // Process 0 opens its training input first: it may create a snapshot that the others read.
  if (!processes_.is_first()) processes_.barrier("opening the inputs");
  input_ = std::make_unique<Prefetch>(open_input(config.input, "input", options).input,
                                      train().prefetch_batches);
  evaluation_.emplace(config, train(),
                      [&](const Template<BaseInput>& input_tpl, const std::string& where) {
                        return open_input(input_tpl, where, options);
                      });
  if (processes_.is_first()) {
    const bool keeps = options.trains && options.allocates && options.keeps_tokenizer;
    if (keeps && input_->tokenizer() != nullptr)
      write_run_tokenizer(options.run_directory, *input_->tokenizer());
    processes_.barrier("opening the inputs");
  }
  if (options.allocates) compare_data();
}

// Detects at once, not at the first checkpoint, that processes see different files under one path.
void Session::compare_data() const {
  const auto compare = [&](const BaseInput& input, const std::string& where) {
    const ErrorContext context(where);
    merged_input_states(input.state(), processes_);
  };
  compare(*input_, "input");
  for (const EvalDataset& dataset : evaluation_->datasets())
    compare(dataset.input(), "eval_inputs." + dataset.name());
}

int Session::add_program(const Graph& graph, const SessionOptions& options) {
  CompileOptions compile;
  if (&graph == &train_graph_) compile.on_stage = options.on_stage;
  return ModelSession::add_program(graph, compile);
}

void Session::compile(const ExperimentConfig& config, const SessionOptions& options) {
  TraceSetting setting{mesh_, rules_, global_specification(*input_)};
  std::optional<int> train_number;
  if (options.trains) {
    train_graph_ = task_->train_graph(setting);
    check_rules(rules_, train_graph_);
    train_number = add_program(train_graph_, options);
  }
  evaluation_->compile(*this, config, directory_of_inputs(options),
                       [&](const Graph& graph) { return add_program(graph, options); });
  setting.batch = copies_of_one_example(setting, *input_);
  const Graph logits_graph = task_->logits_graph(setting, eval_weights());
  if (options.allocates) check_vocabulary(logits_graph);
  if (train().sample.length > 0 && options.trains && options.allocates)
    samples_.emplace(*this, *input_);

  if (options.allocates) executor_.allocate();
  if (train_number) train_.emplace(executor_, *train_number, *task_);
  evaluation_->begin(executor_);
  if (samples_) samples_->begin();
}

void Session::check_vocabulary(const Graph& logits_graph) const {
  const GraphOutput* logits = logits_graph.find_output(names::kLogits);
  const Type& type = logits_graph.type(logits->value);
  if (!type.has(kVocabAxis)) return;  // Not a language model.
  const auto check = [&](const BaseInput& input, const std::string& where) {
    if (input.vocab_size() > type.axis(kVocabAxis).size)
      fail(
          "{}: its token ids reach {}, but the model's vocabulary has {}; set vocab_size to at "
          "least {}",
          where, input.vocab_size() - 1, type.axis(kVocabAxis).size, input.vocab_size());
  };
  check(*input_, "input");
  for (const EvalDataset& dataset : evaluation_->datasets())
    check(dataset.input(), "eval_inputs." + dataset.name());
}

int64_t Session::tokens_per_step() const {
  const HostArray ids = global_specification(*input_).at("ids");
  int64_t tokens = 1;
  for (const int64_t size : ids.shape) tokens *= size;
  return tokens;
}

TrainProgram::TrainProgram(Executor& executor, int program, const BaseTask& task)
    : executor_(executor),
      program_(program),
      task_(task),
      metrics_(outputs_after(executor, program, names::kSumPrefix)) {
  for (const std::string_view prefix : {names::kParameterNormPrefix, names::kGradientNormPrefix})
    for (const std::string& path : outputs_after(executor, program, prefix))
      norms_.push_back(std::string(prefix) + path);
}

StepResult TrainProgram::run(const Batch& batch, int64_t step) {
  StepResult result;
  result.learning_rate =
      task_.learner().optimizer().learning_rate(step, task_.train().num_train_steps);
  write_batch(executor_, program_, batch);
  write_scalar(executor_, program_, names::kStep, static_cast<int32_t>(step));
  write_scalar(executor_, program_, names::kLearningRate, static_cast<float>(result.learning_rate));
  executor_.run(program_);

  const auto scalar = [&](std::string_view name) { return executor_.read_scalar(program_, name); };
  result.loss = scalar(names::kLoss);
  result.grad_norm = scalar(names::kGradNorm);
  result.applied = scalar(names::kApplied) != 0.0f;
  result.skipped = static_cast<int64_t>(scalar(names::kSkipped));
  result.skipped_in_a_row = static_cast<int64_t>(scalar(names::kSkippedInARow));
  MetricMeans means;
  add_metrics(executor_, program_, metrics_, &means);
  result.metrics = means.means();
  for (const std::string& name : norms_) result.parameter_norms[name] = scalar(name);
  return result;
}

}  // namespace tessera
