// SPDX-License-Identifier: Apache-2.0
#include "tests/tasks/interop/hf_run.h"

#include <algorithm>
#include <cstring>

#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "core/runtime/executor/executor.h"
#include "inputs/span_corruption_input.h"
#include "inputs/synthetic_input.h"
#include "layers/fprop_scope.h"
#include "layers/models/transformer.h"
#include "tasks/run/decode/decode_program.h"
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
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(hf_golden("")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

HfConfig hf_golden_config(const std::string& name) {
  const std::string file = (hf_golden(name) / "config.json").string();
  return read_hf_config(read_file(file), file);
}

std::string hf_dtype(const std::string& golden) {
  const SafetensorsModel model(hf_golden(golden));
  switch (model.find(model.names()[0])->type) {
    case SafetensorsType::kBF16:
      return "bf16";
    case SafetensorsType::kF16:
      return "f16";
    default:
      return "f32";
  }
}

ExperimentConfig hf_experiment(const LanguageModel::HParams& model) {
  const SyntheticInput::HParams input{.task = SyntheticTask::kCopy,
                                      .global_batch_size = 4,
                                      .seq_len = 20,
                                      .num_letters = 8,
                                      .distance = 2};
  const auto& lm = model.lm_tpl.as<TransformerLm::HParams>();
  Template<BaseInput> input_tpl = input;
  if (lm.encoder_tpl.has())
    input_tpl = SpanCorruptionInput::HParams{.input_tpl = input,
                                             .first_sentinel_id = lm.vocab_size.get() - 1,
                                             .global_batch_size = 4,
                                             .seq_len = 20};
  return {
      .task =
          SingleTask::HParams{
              .model = model,
              .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = 1e-2}},
              .train = {.num_train_steps = 3, .save_interval_steps = 0, .eval_interval_steps = 0}},
      .input = input_tpl};
}

ExperimentConfig hf_experiment(const std::string& golden, StackStyle stack) {
  return hf_experiment(model_of_hf(hf_golden_config(golden), stack));
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

namespace {

using Rows = std::vector<std::vector<int32_t>>;

Rows next_tokens(const Rows& rows) {
  Rows next = rows;
  for (std::vector<int32_t>& row : next) std::rotate(row.begin(), row.begin() + 1, row.end());
  return next;
}

// The number of each token's document, from 1, and its place there.
struct Documents {
  std::vector<int32_t> ids, positions;
};
Documents documents_of(const std::vector<int64_t>& lengths) {
  Documents documents;
  for (size_t i = 0; i < lengths.size(); ++i)
    for (int64_t at = 0; at < lengths[i]; ++at) {
      documents.ids.push_back(static_cast<int32_t>(i + 1));
      documents.positions.push_back(static_cast<int32_t>(at));
    }
  return documents;
}

// Traces one pass, and the values of its inputs.
class PassTrace {
 public:
  PassTrace(const BaseModel& model, const Rows& rows, Backward backward,
            const std::vector<int64_t>& lengths, const Rows& labels, const HfEncoderRows& encoder) {
    const TraceScope trace(graph, mesh_, rules_);
    Features features;
    features.mode = Mode::kEval;
    const auto add = [&](const std::string& name, const Rows& values) {
      const std::string axis = name.starts_with("encoder_") ? "encoder_seq" : "seq";
      features.tensors[name] =
          input("batch/" + name, InputKind::kBatch,
                make_type(DType::kI32, {{"batch", static_cast<int64_t>(values.size()), {}},
                                        {axis, static_cast<int64_t>(values[0].size()), {}}}));
      for (const auto& row : values)
        inputs[name].insert(inputs[name].end(), row.begin(), row.end());
    };
    add("ids", rows);
    add("labels", labels.empty() ? next_tokens(rows) : labels);
    const auto add_documents = [&](const std::string& prefix, const std::vector<int64_t>& each) {
      if (each.empty()) return;
      const Documents documents = documents_of(each);
      add(prefix + "segment_ids", Rows(rows.size(), documents.ids));
      add(prefix + "segment_pos", Rows(rows.size(), documents.positions));
    };
    add_documents("", lengths);
    if (!encoder.ids.empty()) add("encoder_ids", encoder.ids);
    add_documents("encoder_", encoder.documents);
    const std::vector<Tensor> parameters = parameter_inputs(model.parameters());
    const FpropScope scope(parameters, features);
    output("logits", model.logits(features));
    if (backward == Backward::kNo) return;
    features.tensors["weights"] =
        labels.empty()
            ? all_but_last(rows)
            : cast(less(constant(-1.0, DType::kI32), features.get("labels")), DType::kF32);
    const ModelOutput result = model(features);
    const std::vector<Tensor> slopes = gradients(result.loss.sum / result.loss.weight, parameters);
    for (size_t i = 0; i < slopes.size(); ++i)
      if (slopes[i].valid())
        output("gradient/" + model.parameters().parameters()[i].path, slopes[i]);
  }

  Graph graph;
  std::map<std::string, std::vector<int32_t>> inputs;

 private:
  // Every token but the last of a row has a next one.
  static Tensor all_but_last(const Rows& rows) {
    const auto seq = static_cast<int64_t>(rows[0].size());
    const Tensor weights =
        cast(less(iota({"seq", seq, {}}), constant(static_cast<double>(seq - 1), DType::kI32)),
             DType::kF32);
    return broadcast(weights, {{"batch", static_cast<int64_t>(rows.size()), {}}}, "batch seq");
  }

  Mesh mesh_;
  AxisRules rules_;
};

}  // namespace

HfPass pass_of(const ExperimentConfig& config, const fs::path& run_directory, const Rows& rows,
               Backward backward, const std::vector<int64_t>& documents, const Rows& labels,
               const HfEncoderRows& encoder) {
  const std::unique_ptr<BaseTask> task = config.task.instantiate();
  const PassTrace trace(task->model(), rows, backward, documents, labels, encoder);
  const SmallDevices devices(1);
  Executor executor(*devices.in_order[0]);
  const int program = executor.add_program(trace.graph, {});
  executor.allocate();
  const CheckpointStore store(run_directory / "checkpoints");
  restore_state(executor, task->model().parameters(), store.open(store.newest().value()));
  for (const auto& [name, values] : trace.inputs)
    if (trace.graph.find_input("batch/" + name) != nullptr)
      executor.write_input(program, "batch/" + name, std::as_bytes(std::span(values)));
  executor.run(program);
  const auto values_of = [&](const std::string& name) {
    std::vector<float> values(
        static_cast<size_t>(trace.graph.type(trace.graph.find_output(name)->value).elements()));
    executor.read_output(program, name, std::as_writable_bytes(std::span(values)));
    return values;
  };
  HfPass pass{.logits = values_of("logits")};
  for (const Parameter& each : task->model().parameters().parameters())
    if (trace.graph.find_output("gradient/" + each.path) != nullptr)
      pass.gradients[each.path] = values_of("gradient/" + each.path);
  return pass;
}

std::vector<float> logits_of(const ExperimentConfig& config, const fs::path& run_directory,
                             const Rows& rows, const HfEncoderRows& encoder) {
  return pass_of(config, run_directory, rows, Backward::kNo, {}, {}, encoder).logits;
}

Rows decoded(const ExperimentConfig& config, const fs::path& run_directory, const Rows& prompts,
             int64_t steps, int64_t prefill_chunk) {
  const SmallDevices devices(1);
  ProcessGroup alone;
  ModelSession session(config, ModelSession::Purpose::kRunning, devices.in_order, 1, alone);
  const DecodeHParams p{.strategy = DecodeStrategy::kGreedy,
                        .max_decode_steps = steps,
                        .prefill_chunk = prefill_chunk};
  Decoding decoding(session, p, std::ssize(prompts), std::ssize(prompts[0]));
  session.executor().allocate();
  const CheckpointStore store(run_directory / "checkpoints");
  restore_state(session.executor(), session.task().model().parameters(),
                store.open(store.newest().value()));
  const PromptText text(nullptr, decoding.vocab_size());
  decoding.begin(&text);
  std::vector<DecodedExample> examples;
  for (const std::vector<int32_t>& ids : prompts) examples.push_back({.prompt_ids = ids});
  decoding.decode(&examples);
  Rows rows;
  for (const DecodedExample& example : examples) rows.push_back(example.samples.at(0).ids);
  return rows;
}

void for_each_block(Template<SequenceLayer>& layer_tpl,
                    const std::function<void(TransformerBlock::HParams&)>& change) {
  if (layer_tpl.holds<TransformerBlock::HParams>())
    return change(layer_tpl.as<TransformerBlock::HParams>());
  if (layer_tpl.holds<LayerSequence::HParams>()) {
    for (auto& part : layer_tpl.as<LayerSequence::HParams>().layers_tpl)
      for_each_block(part, change);
  } else if (layer_tpl.holds<Repeated::HParams>()) {
    for_each_block(layer_tpl.as<Repeated::HParams>().block_tpl, change);
  } else {
    for_each_block(layer_tpl.as<StackedTransformer::HParams>().block_tpl, change);
  }
}

HfScores read_scores(const fs::path& directory) {
  const SafetensorsFile file(directory / "scores.safetensors");
  HfScores scores;
  for (const SafetensorsTensor& tensor : file.header().tensors) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    file.read(tensor, 0, values);
    if (tensor.name == "logits" || tensor.name == "spread") {
      (tensor.name == "logits" ? scores.logits : scores.spread) = values;
      continue;
    }
    Rows& rows = tensor.name == "ids"           ? scores.ids
                 : tensor.name == "encoder_ids" ? scores.encoder_ids
                 : tensor.name == "generated"   ? scores.generated
                 : tensor.name == "continued"   ? scores.continued
                                                : scores.labels;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % static_cast<size_t>(tensor.shape[1]) == 0) rows.emplace_back();
      rows.back().push_back(static_cast<int32_t>(values[i]));
    }
  }
  return scores;
}

void write_scores(const fs::path& directory, const HfScores& scores) {
  const auto shape_of = [](const Rows& rows) {
    return std::vector<int64_t>{std::ssize(rows), std::ssize(rows[0])};
  };
  std::vector<int64_t> logits = shape_of(scores.ids);
  logits.push_back(std::ssize(scores.logits) / (logits[0] * logits[1]));
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, rows] :
       {std::pair("ids", &scores.ids), std::pair("encoder_ids", &scores.encoder_ids)})
    if (!rows->empty()) tensors.push_back({name, SafetensorsType::kF32, shape_of(*rows), 0});
  tensors.push_back({"logits", SafetensorsType::kF32, logits, 0});
  const fs::path scratch = directory / "scratch";
  fs::create_directories(scratch);
  SafetensorsWriter writer(scratch, {tensors});
  for (const Rows* const rows : {&scores.ids, &scores.encoder_ids})
    for (const auto& row : *rows) writer.write(std::vector<float>(row.begin(), row.end()));
  writer.write(scores.logits);
  writer.finish();
  fs::rename(scratch / "model.safetensors", directory / "scores.safetensors");
  fs::remove(scratch);
}

std::vector<float> tensor_values(const SafetensorsModel& model, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(model.find(name)->elements()));
  model.read(name, 0, values);
  return values;
}

void require_same_tensors(const fs::path& a, const fs::path& b) {
  const SafetensorsModel first(a), second(b);
  REQUIRE(first.names() == second.names());
  for (const std::string& name : first.names()) {
    INFO(name);
    REQUIRE(first.find(name)->text() == second.find(name)->text());
    REQUIRE(tensor_values(first, name) == tensor_values(second, name));
  }
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

}  // namespace tessera
