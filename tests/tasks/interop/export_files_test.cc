// SPDX-License-Identifier: Apache-2.0
// The files that an export writes, and what it rejects.
#include <cstdlib>
#include <regex>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "tasks/interop/hf_files.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"
#include "tests/support/reference_models.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

// Every file of a directory: its text, or for weights the header and a checksum.
std::string listing(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) {
    const std::string bytes = read_file(file);
    text += fmt::format("== {}\n", file.filename().string());
    if (file.extension() != ".safetensors") {
      text += bytes;
      continue;
    }
    const auto head = static_cast<size_t>(
        safetensors_head_bytes(bytes, static_cast<int64_t>(bytes.size()), "file"));
    text += fmt::format("{} bytes, crc32c {:08x}\n{}\n", bytes.size(),
                        crc32c(std::as_bytes(std::span(bytes))), bytes.substr(8, head - 8));
  }
  return text;
}

TEST_CASE("an export matches the golden files byte for byte") {
  const TemporaryDirectory directory;
  std::string text;
  for (const std::string name : {"gpt2", "llama_scaled"}) {
    const ExperimentConfig config = hf_experiment(name);
    import_hf(config, hf_golden(name), directory / name / "run");
    RunWith options;
    // Named, so that config.json is written and not that of the import.
    options.of_mode<ExportOptions>().family = hf_golden_config(name).family->model_type;
    options.of_mode<ExportOptions>().dtype = name == "gpt2" ? "bf16" : "f32";
    options.of_mode<ExportOptions>().max_shard_bytes = name == "gpt2" ? 12000 : 1000000;
    export_hf(config, directory / name / "run", directory / name / "out", options);
    text += "# " + name + "\n" + listing(directory / name / "out");
  }
  REQUIRE(golden_difference("hugging_face/exported.txt", text) == "");
}

TEST_CASE("a directory with other files is left alone, an earlier export is replaced") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = hf_experiment("llama");
  import_hf(config, hf_golden("llama"), directory / "run");
  const auto message = [&](const RunWith& options = {}) {
    return error_of([&] { export_hf(config, directory / "run", directory / "out", options); });
  };
  write_bytes(directory / "out/thesis.tex", "years of work");
  REQUIRE_THAT(message(),
               Contains("out holds 'thesis.tex', which no export wrote; give a new or an "
                        "empty directory"));
  REQUIRE(read_bytes(directory / "out/thesis.tex") == "years of work");
  fs::remove(directory / "out/thesis.tex");
  RunWith sharded;
  sharded.of_mode<ExportOptions>().max_shard_bytes = 4000;
  REQUIRE(message(sharded) == "no error");
  REQUIRE(fs::exists(directory / "out/model.safetensors.index.json"));
  REQUIRE(message() == "no error");
  REQUIRE_FALSE(fs::exists(directory / "out/model.safetensors.index.json"));
  REQUIRE(fs::exists(directory / "out/model.safetensors"));
  write_bytes(directory / "out/README.md", "mine");
  REQUIRE_THAT(message(), Contains("out holds 'README.md', which no export wrote"));
  // No temporary files remain next to it.
  for (const auto& entry : fs::directory_iterator(directory.path()))
    REQUIRE_FALSE(entry.path().filename().string().starts_with('.'));
  write_bytes(directory / "file", "");
  REQUIRE_THAT(error_of([&] { export_hf(config, directory / "run", directory / "file"); }),
               Contains("file is not a directory"));
}

TEST_CASE("an invalid export is rejected with a reason and writes nothing") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = hf_experiment("llama");
  const auto message = [&](const ExperimentConfig& other, const RunWith& options = {}) {
    return error_of([&] { export_hf(other, directory / "run", directory / "out", options); });
  };
  REQUIRE_THAT(message(config), Contains("checkpoints holds no checkpoint to export; train first"));
  import_hf(config, hf_golden("llama"), directory / "run");
  RunWith options;
  options.of_mode<ExportOptions>().dtype = "bf32";
  REQUIRE_THAT(message(config, options),
               Contains("--dtype=bf32: expected one of f32, bf16, f16, f64; did you mean"));
  options = {};
  options.dry_run = true;
  REQUIRE(message(config, options) == "no error");
  // A field that differs from the trained run.
  ExperimentConfig other = config;
  block_of(other).ffn_tpl.as<FeedForward::HParams>().activation_tpl = ReLU::HParams{};
  REQUIRE_THAT(message(other), Contains("the experiment differs from the one that wrote") &&
                                   Contains("ffn_tpl.activation_tpl: SiLU there, ReLU here"));
  REQUIRE_THAT(message(hf_experiment(c4_spmd_1b())), Contains("is of no family of transformers"));
  options = {};
  options.of_mode<ExportOptions>().family = "gpt3";
  REQUIRE_THAT(message(config, options), Contains("--family is 'gpt3', expected one of ") &&
                                             Contains("did you mean 'gpt2'?"));
  REQUIRE_FALSE(fs::exists(directory / "out"));
}

// A golden's model with another value of a member of its config.json.
struct OtherMember {
  std::string golden, member = "", value = "";
};

ExperimentConfig experiment_with(const OtherMember& other) {
  const fs::path files = hf_golden(other.golden);
  const std::regex member(fmt::format("\"{}\": [^,]*", other.member));
  const std::string text = std::regex_replace(read_file(files / "config.json"), member,
                                              fmt::format("\"{}\": {}", other.member, other.value));
  const auto has_head = [&] { return has_tensor(files, "lm_head.weight"); };
  return hf_experiment(
      model_of_hf(read_hf_config(text, "config.json", has_head), StackStyle::kRepeated));
}

// Needs TESSERA_PYTHON to name a Python that has transformers. The logits of trained and exported
// models equal those that transformers computes from the exported files.
TEST_CASE("transformers loads exported models and computes the same logits", "[full]") {
  const std::string python = python_with("transformers");
  if (python.empty()) {
    WARN("skipped: no Python with transformers (TESSERA_PYTHON)");
    return;
  }
  const TemporaryDirectory directory;
  std::string folders;
  std::vector<OtherMember> models = {{"t5", "scale_decoder_outputs", "false"},
                                     {"t5_v1_1", "scale_decoder_outputs", "true"},
                                     {"modernbert", "local_attention", "1"}};
  for (const std::string& name : hf_golden_names()) models.push_back({name});
  for (const OtherMember& model : models) {
    const std::string name = model.golden;
    const ExperimentConfig config = experiment_with(model);
    const fs::path place = directory / (name + model.member), out = place / "out";
    train_hf(config, place / "run", 3);
    RunWith options;
    options.of_mode<ExportOptions>().family = hf_golden_config(name).family->model_type;
    options.of_mode<ExportOptions>().max_shard_bytes = name.ends_with("untied") ? 6000 : 1000000;
    export_hf(config, place / "run", out, options);
    HfScores scores = read_scores(hf_golden(name));
    scores.logits = logits_of(config, place / "run", scores.ids, {scores.encoder_ids});
    write_scores(out, scores);
    folders += " " + out.string();
  }
  const std::string command = fmt::format("{} {}/tests/golden/hugging_face.py --check{}", python,
                                          TESSERA_SOURCE_DIR, folders);
  REQUIRE(std::system(command.c_str()) == 0);
}

}  // namespace
}  // namespace tessera
