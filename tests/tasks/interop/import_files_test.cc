// SPDX-License-Identifier: Apache-2.0
// Import of directories that differ from what current transformers versions write.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "layers/experts/moe_feed_forward.h"
#include "tasks/interop/export.h"
#include "tasks/interop/hf_files.h"
#include "tasks/interop/import.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

struct Tensor {
  SafetensorsTensor tensor;
  std::vector<float> values;
};

// The tensors of a golden, to be modified and written to another directory.
class Edited {
 public:
  explicit Edited(const std::string& golden)
      : config(read_bytes(hf_golden(golden) / "config.json")) {
    const SafetensorsModel model(hf_golden(golden));
    for (const std::string& name : model.names()) {
      Tensor& each = tensors[name];
      each.tensor = *model.find(name);
      each.values.resize(static_cast<size_t>(each.tensor.elements()));
      model.read(name, 0, each.values);
    }
  }
  void write(const fs::path& directory) const {
    fs::create_directories(directory);
    write_bytes(directory / "config.json", config);
    SafetensorsPlan plan;
    for (const auto& [name, each] : tensors) {
      plan.tensors.push_back(each.tensor);
      plan.tensors.back().name = name;
    }
    SafetensorsWriter writer(directory, plan);
    for (const auto& [name, each] : tensors) writer.write(each.values);
    writer.finish();
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = tensors.extract(from);
    node.key() = to;
    tensors.insert(std::move(node));
  }

  std::string config;
  std::map<std::string, Tensor> tensors;
};

// What `remove` changes in the values of each tensor whose name has this end.
struct WeightRemoval {
  const char* golden;
  const char* ending;
  void (*remove)(std::vector<float>& values);
};

void set_zero(std::vector<float>& values) { std::ranges::fill(values, 0.0f); }
// The gates of an attention with heads of 8, after the queries of each head.
void open_gates(std::vector<float>& values) {
  const size_t half = 8 * 8;
  for (size_t i = 0; i < values.size(); ++i)
    if (i / half % 2 == 1) values[i] = 0.0f;
}
// All taps of a convolution of width 4 but the token's own.
void forget_earlier(std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (i % 4 != 3) values[i] = 0.0f;
}

TEST_CASE("without the weights of a feature a family's logits are far from those of transformers") {
  const std::vector<WeightRemoval> removals = {
      {"gpt_oss", "sinks", [](std::vector<float>& values) { std::ranges::fill(values, -1e9f); }},
      {"gpt_oss", "router.bias", set_zero},
      {"gpt_oss", "gate_up_proj_bias", set_zero},
      {"gpt_oss", "down_proj_bias", set_zero},
      {"qwen3_next", "q_proj.weight", open_gates},
      {"qwen3_next", "shared_expert_gate.weight", set_zero},
      {"qwen3_next", "conv1d.weight", forget_earlier},
      {"qwen3_next", "in_proj_ba.weight", set_zero},
      {"qwen3_next", "A_log", set_zero},
      {"qwen3_next", "dt_bias", set_zero},
  };
  for (const WeightRemoval& removal : removals) {
    INFO(removal.golden << " " << removal.ending);
    const ExperimentConfig config = hf_experiment(removal.golden);
    const HfScores scores = read_scores(hf_golden(removal.golden));
    const auto error = [&](bool removes) {
      const TemporaryDirectory directory;
      Edited model(removal.golden);
      for (auto& [name, each] : model.tensors)
        if (removes && name.ends_with(removal.ending)) removal.remove(each.values);
      model.write(directory / "hf");
      import_hf(config, directory / "hf", directory / "run");
      return largest_difference(logits_of(config, directory / "run", scores.ids), scores.logits);
    };
    REQUIRE(error(true) > 100.0 * error(false));
  }
}

TEST_CASE("files of a bare model with leftover tensors of old releases are read") {
  const TemporaryDirectory directory;
  Edited gpt2("gpt2");
  std::vector<std::string> names;
  for (const auto& [name, each] : gpt2.tensors) names.push_back(name);
  for (const std::string& name : names)
    gpt2.rename(name, name.substr(std::string_view("transformer.").size()));
  gpt2.tensors["h.0.attn.bias"] = {{"", SafetensorsType::kF32, {1, 1, 2, 2}, 0}, {1, 0, 1, 1}};
  gpt2.tensors["h.0.attn.masked_bias"] = {{"", SafetensorsType::kF32, {}, 0}, {-1e4f}};
  gpt2.tensors["lm_head.weight"] = gpt2.tensors.at("wte.weight");
  gpt2.write(directory / "hf");
  const ExperimentConfig config = hf_experiment("gpt2");
  import_hf(config, directory / "hf", directory / "run");
  const HfScores scores = read_scores(hf_golden("gpt2"));
  REQUIRE(largest_difference(logits_of(config, directory / "run", scores.ids), scores.logits) <
          1e-4);
}

TEST_CASE("a head that is not the table to which config.json ties it is an error") {
  const std::vector<std::pair<std::string, std::string>> heads = {
      {"gpt2", "lm_head.weight"}, {"bert", "cls.predictions.decoder.weight"}};
  for (const auto& [golden, head] : heads) {
    INFO(golden);
    const TemporaryDirectory directory;
    Edited model(golden);
    model.tensors[head] = model.tensors.at(
        golden == "gpt2" ? "transformer.wte.weight" : "bert.embeddings.word_embeddings.weight");
    model.write(directory / "copy");
    import_hf(hf_experiment(golden), directory / "copy", directory / "run");
    model.tensors[head].values.back() += 1.0f;
    model.write(directory / "other");
    REQUIRE_THAT(
        error_of([&, name = golden] {
          import_hf(hf_experiment(name), directory / "other", directory / "other_run");
        }),
        Contains("'" + head + "' has other values than") && Contains("tie_word_embeddings"));
  }
}

TEST_CASE("a BERT with the tensors of old files and of other heads is read") {
  const TemporaryDirectory directory;
  Edited bert("bert");
  std::vector<std::string> names;
  for (const auto& [name, each] : bert.tensors) names.push_back(name);
  for (const std::string& name : names) {
    if (name.ends_with("LayerNorm.weight"))
      bert.rename(name, name.substr(0, name.size() - 6) + "gamma");
    if (name.ends_with("LayerNorm.bias"))
      bert.rename(name, name.substr(0, name.size() - 4) + "beta");
  }
  bert.tensors["cls.predictions.decoder.weight"] =
      bert.tensors.at("bert.embeddings.word_embeddings.weight");
  bert.tensors["cls.predictions.decoder.bias"] = bert.tensors.at("cls.predictions.bias");
  for (const char* name : {"bert.pooler.dense.bias", "cls.seq_relationship.bias"})
    bert.tensors[name] = {{"", SafetensorsType::kF32, {2}, 0}, {1, 2}};
  bert.tensors["bert.embeddings.position_ids"] = {{"", SafetensorsType::kF32, {1, 2}, 0}, {0, 1}};
  bert.write(directory / "hf");
  const ExperimentConfig config = hf_experiment("bert");
  import_hf(config, directory / "hf", directory / "run");
  const HfScores scores = read_scores(hf_golden("bert"));
  REQUIRE(largest_difference(logits_of(config, directory / "run", scores.ids), scores.logits) <
          1e-4);
  export_hf(config, directory / "run", directory / "out");
  require_same_tensors(hf_golden("bert"), directory / "out");
  bert.tensors["classifier.bias"] = bert.tensors.at("bert.pooler.dense.bias");
  bert.write(directory / "hf");
  REQUIRE_THAT(error_of([&] { import_hf(config, directory / "hf", directory / "other"); }),
               Contains("'classifier.bias' is not a tensor of this model"));
}

// Flags of a config.json ("": absent), and the factor of the golden's logits that transformers 5.24
// computes with them: outputs are scaled by 1 / √model_dims, here 10.
struct T5Head {
  std::string golden, ties, scales;
  double factor;
};
const T5Head kT5Heads[] = {{"t5", "true", "true", 1.0},
                           {"t5", "true", "", 1.0},
                           {"t5", "false", "true", 1.0},
                           {"t5", "true", "false", std::sqrt(10.0)},
                           {"t5", "false", "", std::sqrt(10.0)},
                           {"t5_v1_1", "true", "false", 1.0},
                           {"t5_v1_1", "false", "", 1.0},
                           {"t5_v1_1", "true", "", std::sqrt(0.1)},
                           {"t5_v1_1", "false", "true", std::sqrt(0.1)}};

void set_flag(std::string& config, const std::string& name, const std::string& value) {
  const std::string member = "  \"" + name + "\": ";
  const size_t at = config.find(member), end = config.find('\n', at) + 1;
  config.replace(at, end - at, value.empty() ? "" : member + value + ",\n");
}

// The experiment of hf.Pretrained for these files.
ExperimentConfig t5_experiment(const fs::path& files) {
  const auto has_head = [&] { return has_tensor(files, "lm_head.weight"); };
  return hf_experiment(
      model_of_hf(read_hf_config(read_file(files / "config.json"), "config.json", has_head),
                  StackStyle::kUnrolled));
}

void require_t5_logits(const fs::path& files, const fs::path& run, const T5Head& head) {
  ExperimentConfig config = t5_experiment(files);
  const bool ties = head.golden == "t5";  // Its files have no lm_head.weight.
  REQUIRE(lm_of(config).separate_embedding_tpl.has() == !ties);
  import_hf(config, files, run);
  HfScores scores = read_scores(hf_golden(head.golden));
  for (float& logit : scores.logits) logit *= static_cast<float>(head.factor);
  const std::vector<float> logits = logits_of(config, run, scores.ids, {scores.encoder_ids});
  REQUIRE(largest_difference(logits, scores.logits) < 1e-5 * *std::ranges::max_element(logits));
}

TEST_CASE("the head of a T5 is tied if its files have none, whatever config.json calls it") {
  for (const T5Head& head : kT5Heads) {
    INFO(head.golden << " ties=" << head.ties << " scales=" << head.scales);
    const TemporaryDirectory directory;
    Edited t5(head.golden);
    set_flag(t5.config, "tie_word_embeddings", head.ties);
    set_flag(t5.config, "scale_decoder_outputs", head.scales);
    t5.write(directory / "hf");
    require_t5_logits(directory / "hf", directory / "run", head);
    const ExperimentConfig config = t5_experiment(directory / "hf");
    RunWith options;
    options.of_mode<ExportOptions>().dtype = hf_dtype(head.golden);
    export_hf(config, directory / "run", directory / "out", options);
    require_same_tensors(directory / "hf", directory / "out");
    REQUIRE(read_file(directory / "out/config.json") == t5.config);
    // Without the file of the import the run's model tells whether the head is tied.
    fs::remove(directory / "run" / "hf_config.json");
    export_hf(config, directory / "run", directory / "out", options);
    require_same_tensors(directory / "hf", directory / "out");
    const bool ties = head.golden == "t5", scales = ties == (head.factor == 1.0);
    REQUIRE_THAT(read_file(directory / "out/config.json"),
                 Contains(fmt::format("\"tie_word_embeddings\": {}", ties)) &&
                     Contains(fmt::format("\"scale_decoder_outputs\": {}", scales)));
    require_t5_logits(directory / "out", directory / "again", head);
  }
}

TEST_CASE("only a T5 asks its files whether the head is tied") {
  const TemporaryDirectory directory;
  Edited llama("llama");
  llama.tensors.erase("lm_head.weight");
  llama.write(directory / "hf");
  REQUIRE_THAT(
      error_of([&] { import_hf(hf_experiment("llama"), directory / "hf", directory / "run"); }),
      Contains("'lm_head.weight' is missing"));
}

TEST_CASE("whether a folder has a tensor is read from its index, or from one header") {
  const TemporaryDirectory directory;
  REQUIRE(!has_tensor(directory.path(), "b").has_value());
  // The files of an index are not opened.
  write_bytes(directory / "model.safetensors.index.json",
              R"({"weight_map": {"b": "model-00001-of-00002.safetensors"}})");
  REQUIRE(has_tensor(directory.path(), "b") == true);
  REQUIRE(has_tensor(directory.path(), "model-00001-of-00002.safetensors") == false);
  fs::copy_file(hf_golden("t5_v1_1") / "model.safetensors", directory / "model.safetensors");
  REQUIRE(has_tensor(directory.path(), "b") == false);
  REQUIRE(has_tensor(directory.path(), "lm_head.weight") == true);
}

TEST_CASE("missing, unexpected and wrongly shaped tensors are all named") {
  const TemporaryDirectory directory;
  Edited llama("llama");
  llama.rename("model.norm.weight", "model.nrom.weight");
  Tensor& down = llama.tensors.at("model.layers.1.mlp.down_proj.weight");
  std::swap(down.tensor.shape[0], down.tensor.shape[1]);
  llama.write(directory / "hf");
  const std::string message =
      error_of([&] { import_hf(hf_experiment("llama"), directory / "hf", directory / "run"); });
  REQUIRE_THAT(message,
               Contains("'model.norm.weight' is missing; did you mean 'model.nrom.weight'?"));
  REQUIRE_THAT(message,
               Contains("'model.layers.1.mlp.down_proj.weight' is F32[24 16], expected [16 24]"));
  REQUIRE_THAT(message, Contains("'model.nrom.weight' is not a tensor of this model"));
  REQUIRE_FALSE(fs::exists(directory / "run"));  // No run directory was created.
}

TEST_CASE("missing and additional experts are named") {
  const TemporaryDirectory directory;
  const auto message = [&](const Edited& edited) {
    edited.write(directory / "hf");
    return error_of(
        [&] { import_hf(hf_experiment("mixtral"), directory / "hf", directory / "run"); });
  };
  const std::string experts = "model.layers.1.block_sparse_moe.experts.";
  Edited fewer("mixtral");
  fewer.tensors.erase(experts + "3.w2.weight");
  REQUIRE_THAT(message(fewer), Contains("'" + experts + "3.w2.weight' is missing"));
  Edited more("mixtral");
  more.tensors[experts + "4.w1.weight"] = more.tensors.at(experts + "3.w1.weight");
  REQUIRE_THAT(message(more),
               Contains("'" + experts + "4.w1.weight' is not a tensor of this model"));
  Edited other("mixtral");
  Tensor& gate = other.tensors.at("model.layers.0.block_sparse_moe.gate.weight");
  gate.tensor.shape[0] = 5;
  gate.values.resize(5 * 16);
  REQUIRE_THAT(message(other),
               Contains("'model.layers.0.block_sparse_moe.gate.weight' is F32[5 16], expected "
                        "[4 16]"));
  ExperimentConfig config = hf_experiment("mixtral");
  block_of(config).ffn_tpl.as<MoeFeedForward::HParams>().num_experts = 8;
  REQUIRE_THAT(error_of([&] { import_hf(config, hf_golden("mixtral"), directory / "run"); }),
               Contains("ffn_tpl.num_experts: 4 in config.json, 8 in the experiment"));
  REQUIRE_FALSE(fs::exists(directory / "run"));
}

TEST_CASE("all differences between the experiment and the imported model are reported") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("llama");
  lm_of(config).vocab_size = 64;
  block_of(config).attention_tpl.as<DotProductAttention::HParams>().num_kv_heads = 4;
  const std::string message =
      error_of([&] { import_hf(config, hf_golden("llama"), directory / "run"); });
  REQUIRE_THAT(
      message,
      Contains("does not match the experiment's model: vocab_size: 48 in config.json, 64 in "
               "the experiment; attention_tpl.num_kv_heads: 2 in config.json, 4 in the "
               "experiment. Change the experiment, or use --exp=hf.Pretrained"));
  REQUIRE_THAT(
      error_of([&] { import_hf(hf_experiment("llama"), directory / "none", directory / "run"); }),
      Contains("none has neither model.safetensors nor"));
}

TEST_CASE("weights come from one source, and only into a run that has taken no step") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("llama");
  import_hf(config, hf_golden("llama"), directory / "run");
  // Import may be repeated while no step was taken, and the run may initialise another run.
  import_hf(config, hf_golden("llama"), directory / "run");
  config.task.as<SingleTask::HParams>().train.init_from.directory = (directory / "run").string();
  REQUIRE_THAT(error_of([&] { import_hf(config, hf_golden("llama"), directory / "other"); }),
               Contains("--input also gives weights; set only one of them"));
  train_hf(config, directory / "other", 1);
  REQUIRE(CheckpointStore(directory / "other/checkpoints").newest() == 1);
  REQUIRE_THAT(
      error_of([&] { import_hf(hf_experiment("llama"), hf_golden("llama"), directory / "other"); }),
      Contains("other contains a run that has started (step 1); import into a new --job_log_dir, "
               "or set that run aside with --restart"));
  RunWith restart;
  restart.restart = true;
  import_hf(hf_experiment("llama"), hf_golden("llama"), directory / "other", restart);
  REQUIRE(CheckpointStore(directory / "other/checkpoints").steps() == std::vector<int64_t>{0});
  REQUIRE(fs::exists(directory / "other/before_restart_1/metrics.jsonl"));
}

}  // namespace
}  // namespace tessera
