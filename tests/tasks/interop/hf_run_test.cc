// SPDX-License-Identifier: Apache-2.0
#include "tests/tasks/interop/hf_run.h"

#include <cstring>

#include "core/graph/trace.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "core/runtime/executor/executor.h"
#include "inputs/synthetic_input.h"
#include "layers/fprop_scope.h"
#include "layers/models/transformer.h"
#include "tasks/run/session/model_state.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/run_with.h"
#include "tests/support/test_device.h"

namespace tessera {

namespace fs = std::filesystem;

fs::path hf_golden(const std::string& name) {
  return fs::path(TESSERA_SOURCE_DIR) / "tests/golden/hugging_face" / name;
}

std::vector<std::string> hf_golden_names() {
  return {"gpt2",         "gpt2_untied",     "llama",   "llama_biases",
          "llama_scaled", "llama_stretched", "mixtral", "mixtral_tied"};
}

ExperimentConfig hf_experiment(const LanguageModel::HParams& model) {
  const SyntheticInput::HParams input{.task = SyntheticTask::kCopy,
                                      .global_batch_size = 4,
                                      .seq_len = 20,
                                      .num_letters = 8,
                                      .distance = 2};
  return {
      .task =
          SingleTask::HParams{
              .model = model,
              .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = 1e-2}},
              .train = {.num_train_steps = 3, .save_interval_steps = 0, .eval_interval_steps = 0}},
      .input = input};
}

ExperimentConfig hf_experiment(const std::string& golden, HfStack stack) {
  const fs::path file = hf_golden(golden) / "config.json";
  return hf_experiment(model_of_hf(parse_hf_config(read_file(file), file.string()), stack));
}

TransformerLm::HParams& lm_of(ExperimentConfig& config) {
  return config.task.as<SingleTask::HParams>()
      .model.as<LanguageModel::HParams>()
      .lm_tpl.as<TransformerLm::HParams>();
}

TransformerBlock::HParams& block_of(ExperimentConfig& config) {
  Template<SequenceLayer>& stack = lm_of(config).stacked_transformer_tpl;
  Template<SequenceLayer>& block = stack.holds<Repeated::HParams>()
                                       ? stack.as<Repeated::HParams>().block_tpl
                                       : stack.as<StackedTransformer::HParams>().block_tpl;
  return block.as<TransformerBlock::HParams>();
}

namespace {

// CPU devices of one thread each.
struct SmallDevices {
  explicit SmallDevices(int64_t count)
      : devices(make_test_devices(count, 1)), in_order(pointers(devices)) {}
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device*> in_order;
};

void run(const ExperimentConfig& config, const RunWith& options) {
  ProcessGroup alone;
  const int code = run_hf(config, options, alone);
  REQUIRE(code == 0);
}

}  // namespace

int run_hf(const ExperimentConfig& config, RunWith options, ProcessGroup& processes) {
  options.experiment = "tests.HuggingFace";
  options.verbosity = Verbosity::kSilent;
  const SmallDevices devices(options.devices);
  const auto trainer = make_run(config, options, devices.in_order, processes);
  return trainer->run();
}

void import_hf(const ExperimentConfig& config, const fs::path& input, const fs::path& run_directory,
               RunWith options) {
  options.of_mode<ImportOptions>().input = input;
  options.job_log_dir = run_directory;
  run(config, options);
}

void export_hf(const ExperimentConfig& config, const fs::path& run_directory,
               const fs::path& output, RunWith options) {
  options.of_mode<ExportOptions>().output = output;
  options.job_log_dir = run_directory;
  run(config, options);
}

void train_hf(ExperimentConfig config, const fs::path& run_directory, int64_t steps) {
  config.task.as<SingleTask::HParams>().train.num_train_steps = steps;
  RunWith options;
  options.job_log_dir = run_directory;
  run(config, options);
}

std::vector<float> logits_of(const ExperimentConfig& config, const fs::path& run_directory,
                             const std::vector<std::vector<int32_t>>& rows) {
  const std::unique_ptr<BaseTask> task = config.task.instantiate();
  const auto batch = static_cast<int64_t>(rows.size());
  const auto seq = static_cast<int64_t>(rows[0].size());
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  {
    const TraceScope trace(graph, mesh, rules);
    Features features;
    features.mode = Mode::kEval;
    features.tensors["ids"] =
        input("batch/ids", InputKind::kBatch,
              make_type(DType::kI32, {{"batch", batch, {}}, {"seq", seq, {}}}));
    const FpropScope scope(parameter_inputs(task->model().parameters()), features);
    output("logits", task->model().logits(features));
  }
  const SmallDevices devices(1);
  Executor executor(*devices.in_order[0]);
  const int program = executor.add_program(graph, {});
  executor.allocate();
  const CheckpointStore store(run_directory / "checkpoints");
  restore_state(executor, task->model().parameters(), store.open(store.newest().value()));
  std::vector<int32_t> ids;
  for (const std::vector<int32_t>& row : rows) ids.insert(ids.end(), row.begin(), row.end());
  executor.write_input(program, "batch/ids", std::as_bytes(std::span(ids)));
  executor.run(program);
  std::vector<float> logits(
      static_cast<size_t>(graph.type(graph.find_output("logits")->value).elements()));
  executor.read_output(program, "logits", std::as_writable_bytes(std::span(logits)));
  return logits;
}

HfScores read_scores(const fs::path& directory) {
  const SafetensorsFile file(directory / "scores.safetensors");
  HfScores scores;
  for (const SafetensorsTensor& tensor : file.header().tensors) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    file.read(tensor, 0, values);
    if (tensor.name == "logits") {
      scores.logits = values;
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % static_cast<size_t>(tensor.shape[1]) == 0) scores.ids.emplace_back();
      scores.ids.back().push_back(static_cast<int32_t>(values[i]));
    }
  }
  return scores;
}

void write_scores(const fs::path& directory, const HfScores& scores) {
  const auto batch = static_cast<int64_t>(scores.ids.size());
  const auto seq = static_cast<int64_t>(scores.ids[0].size());
  const int64_t vocab = static_cast<int64_t>(scores.logits.size()) / (batch * seq);
  const fs::path scratch = directory / "scratch";
  fs::create_directories(scratch);
  SafetensorsWriter writer(scratch, {{{"ids", SafetensorsType::kF32, {batch, seq}, 0},
                                      {"logits", SafetensorsType::kF32, {batch, seq, vocab}, 0}}});
  for (const auto& row : scores.ids) writer.write(std::vector<float>(row.begin(), row.end()));
  writer.write(scores.logits);
  writer.finish();
  fs::rename(scratch / "model.safetensors", directory / "scores.safetensors");
  fs::remove(scratch);
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

}  // namespace tessera
