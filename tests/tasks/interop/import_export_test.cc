// SPDX-License-Identifier: Apache-2.0
// Import and export of Hugging Face models, against the logits that transformers computes.
#include <algorithm>
#include <sstream>
#include <thread>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/synthetic_input.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/norms/norms.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/transports.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr double kTolerance = 1e-4;

// Models with another weight layout than transformers' that compute the same function.
struct Variant {
  std::string what, golden;
  void (*change)(ExperimentConfig& config);
};

DotProductAttention::HParams& attention_of(ExperimentConfig& config) {
  return block_of(config).attention_tpl.as<DotProductAttention::HParams>();
}

const std::vector<Variant> kVariants = {
    {"combined qkv weight", "gpt2",
     [](ExperimentConfig& config) { attention_of(config).combine_qkv = true; }},
    {"combined qkv weight in a Llama", "llama_biases",
     [](ExperimentConfig& config) { attention_of(config).combine_qkv = true; }},
    {"interleaved rotary", "llama_scaled",
     [](ExperimentConfig& config) {
       attention_of(config).rotary_tpl.as<RotaryPositionEmbedding::HParams>().interleaved = true;
     }},
    {"interleaved rotary with biases and a combined qkv weight", "llama_biases",
     [](ExperimentConfig& config) {
       attention_of(config).rotary_tpl.as<RotaryPositionEmbedding::HParams>().interleaved = true;
       attention_of(config).combine_qkv = true;
     }},
    {"norm scales stored minus one", "llama",
     [](ExperimentConfig& config) {
       block_of(config).norm_tpl.as<RmsNorm::HParams>().direct_scale = false;
       lm_of(config).final_ln_tpl.as<RmsNorm::HParams>().direct_scale = false;
     }},
    {"output head stored as an embedding table", "llama", [](ExperimentConfig& config) {
       lm_of(config).softmax_tpl = SharedEmbeddingSoftmax::HParams{};
     }}};

TEST_CASE("weights in another layout are converted both ways") {
  for (const Variant& variant : kVariants) {
    INFO(variant.what);
    const TemporaryDirectory directory;
    ExperimentConfig config = hf_experiment(variant.golden);
    variant.change(config);
    import_hf(config, hf_golden(variant.golden), directory / "run");
    const HfScores scores = read_scores(hf_golden(variant.golden));
    REQUIRE(largest_difference(logits_of(config, directory / "run", scores.ids), scores.logits) <
            kTolerance);
    export_hf(config, directory / "run", directory / "out");
    const SafetensorsModel before(hf_golden(variant.golden)), after(directory / "out");
    REQUIRE(before.names() == after.names());
    for (const std::string& name : before.names())
      REQUIRE(largest_difference(tensor_values(before, name), tensor_values(after, name)) < 1e-6);
  }
}

// Whether the import runs on four devices; false: a rule splits an axis that two do not divide.
bool imports_on_mesh(const ExperimentConfig& config, const std::string& name,
                     const RunWith& options, const fs::path& run) {
  try {
    import_hf(config, hf_golden(name), run, options);
  } catch (const Error& error) {
    REQUIRE_THAT(error.what(), Contains("cannot be split"));
    return false;
  }
  return true;
}

// With the first rules that the sizes of the model permit.
void require_same_through_mesh(const std::string& name) {
  INFO(name);
  const TemporaryDirectory directory;
  RunWith options;
  options.devices = 4;
  options.of_mode<ExportOptions>().dtype = hf_dtype(name);
  for (const std::string split :
       {"embed -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl",
        "embed -> data, mlp -> mdl, heads -> mdl", "embed -> data, mlp -> mdl", "mlp -> mdl", ""}) {
    ExperimentConfig config = hf_experiment(name, StackStyle::kRepeated);
    config.mesh.ici_mesh_shape = {1, 2, 2};
    config.rules = {.weights = split, .activations = "batch -> data"};
    const fs::path run = directory / fmt::format("run{}", split.size());
    if (!imports_on_mesh(config, name, options, run)) continue;
    export_hf(config, run, directory / "out", options);
    return require_same_tensors(hf_golden(name), directory / "out");
  }
  FAIL("no rules permit the sizes of " << name);
}

TEST_CASE("export and import on a mesh give the same weights") {
  for (const std::string name : {"gpt2", "llama", "phi3", "olmo2", "gemma2", "qwen3_moe", "pythia",
                                 "deepseek_v3", "gpt_oss", "bert", "modernbert", "qwen3_next"})
    require_same_through_mesh(name);
}

TEST_CASE("export and import of every model on a mesh give the same weights", "[full]") {
  for (const std::string& name : hf_golden_names()) require_same_through_mesh(name);
}

TEST_CASE("experts are imported and exported by the devices that hold them") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("mixtral", StackStyle::kRepeated);
  config.mesh.ici_mesh_shape = {1, 2, 2};
  config.rules = {
      .weights = "experts -> data, embed -> data, heads -> mdl, mlp -> mdl, kv_heads -> mdl",
      .activations = "batch -> data, heads -> mdl, mlp -> mdl, kv_heads -> mdl"};
  RunWith options;
  options.devices = 4;
  import_hf(config, hf_golden("mixtral"), directory / "run", options);
  export_hf(config, directory / "run", directory / "out");
  require_same_tensors(hf_golden("mixtral"), directory / "out");
}

TEST_CASE("processes import together, each its own shards") {
  // For the Mixtral, each process holds two of four experts.
  const std::string name = GENERATE("llama", "mixtral");
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment(name, StackStyle::kRepeated);
  config.mesh.ici_mesh_shape = {1, 2, 2};
  config.rules = {
      .weights = "experts -> data, embed -> data, heads -> mdl, mlp -> mdl, kv_heads -> mdl",
      .activations = "batch -> data, heads -> mdl, mlp -> mdl, kv_heads -> mdl"};
  RunWith options;
  options.devices = 2;
  options.of_mode<ImportOptions>().input = hf_golden(name);
  options.job_log_dir = directory / "run";
  const auto transports = make_loopback(2);
  std::vector<int> codes(2, -1);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < codes.size(); ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup all(transports[rank], std::chrono::seconds(60));
        try {
          codes[rank] = run_hf(config, options, all);
        } catch (const Error& error) {
          WARN(error.what());
          all.fail_together(error.what(), 1, std::chrono::seconds(20));
        }
      });
  }
  REQUIRE(codes == std::vector<int>{0, 0});
  REQUIRE(fs::exists(directory / "run/checkpoints/step_0000000000/host_00001.h5"));
  export_hf(config, directory / "run", directory / "out");
  require_same_tensors(hf_golden(name), directory / "out");
}

TEST_CASE("a weight that the model lacks is exported with its neutral value") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("gpt2");
  attention_of(config).use_bias = false;
  block_of(config).ffn_tpl.as<FeedForward::HParams>().use_bias = false;
  block_of(config).norm_tpl.as<LayerNorm::HParams>().use_bias = false;
  block_of(config).norm_tpl.as<LayerNorm::HParams>().use_scale = false;
  // Importing non-zero biases into a model without biases is an error.
  REQUIRE_THAT(
      error_of([&] { import_hf(config, hf_golden("gpt2"), directory / "refused"); }),
      Contains("'transformer.h.0.ln_1.weight' has the value") &&
          Contains(
              "so expected 1 everywhere; enable the weight in the model (use_bias, use_scale)"));
  REQUIRE_FALSE(fs::exists(directory / "refused/checkpoints"));

  // A model trained without biases, exported and read back.
  train_hf(config, directory / "run", 1);
  export_hf(config, directory / "run", directory / "out");
  const SafetensorsModel model(directory / "out");
  for (const float value : tensor_values(model, "transformer.h.1.attn.c_attn.bias"))
    REQUIRE(value == 0.0f);
  for (const float value : tensor_values(model, "transformer.h.1.ln_2.weight"))
    REQUIRE(value == 1.0f);
  import_hf(config, directory / "out", directory / "again");
  const HfScores scores = read_scores(hf_golden("gpt2"));
  REQUIRE(logits_of(config, directory / "run", scores.ids) ==
          logits_of(config, directory / "again", scores.ids));
  // A model with biases gives the same logits.
  import_hf(hf_experiment("gpt2"), directory / "out", directory / "biased");
  REQUIRE(largest_difference(logits_of(config, directory / "run", scores.ids),
                             logits_of(hf_experiment("gpt2"), directory / "biased", scores.ids)) <
          kTolerance);
}

TEST_CASE("training resumes from imported weights, and export writes the averaged weights") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("llama");
  config.task.as<SingleTask::HParams>().learner.ema_decay = 0.9;
  import_hf(config, hf_golden("llama"), directory / "run");
  // At step 0 the averages equal the weights.
  export_hf(config, directory / "run", directory / "start");
  require_same_tensors(hf_golden("llama"), directory / "start");
  train_hf(config, directory / "run", 3);
  REQUIRE(values_of(directory / "run", "loss").size() == 3);
  REQUIRE_THAT(read_bytes(directory / "run/metrics.jsonl"),
               Contains("\"event\": \"restore\", \"step\": 0"));
  const auto exported = [&](bool on_ema, int64_t step) {
    config.task.as<SingleTask::HParams>().train.eval_on_ema = on_ema;
    RunWith options;
    options.of_mode<ExportOptions>().checkpoint = {CheckpointChoice::Kind::kStep, step};
    const fs::path out = directory / fmt::format("{}_{}", on_ema, step);
    export_hf(config, directory / "run", out, options);
    return tensor_values(SafetensorsModel(out), "model.norm.weight");
  };
  REQUIRE(exported(true, 3) != exported(false, 3));
  REQUIRE_THAT(read_bytes(directory / "true_3/tessera_export.json"),
               Contains("\"step\": 3") && Contains("\"weights\": \"averaged\""));
  REQUIRE_THAT(error_of([&] { exported(true, 2); }), Contains("no checkpoint of step 2"));
  REQUIRE_THAT(error_of([&] { import_hf(config, hf_golden("llama"), directory / "run"); }),
               Contains("contains a run that has started (step 3)"));
}

}  // namespace
}  // namespace tessera
