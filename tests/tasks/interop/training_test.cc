// SPDX-License-Identifier: Apache-2.0
// Training of imported models in bf16 follows that of the same models in PyTorch.
#include <sstream>

#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "layers/experts/moe_feed_forward.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 50;

std::vector<float> losses_of(const fs::path& run) {
  std::vector<float> losses;
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const Json json = parse_json(line, "metrics.jsonl"); json.find("loss") != nullptr)
      losses.push_back(static_cast<float>(json.at("loss").as_number()));
  REQUIRE(std::ssize(losses) == kSteps);
  return losses;
}

// Writes the batches that the run trained on, one after another, and its losses.
void write_training(const ExperimentConfig& config, const fs::path& directory) {
  const std::unique_ptr<BaseInput> input = config.input.instantiate();
  input->attach({});
  std::map<std::string, std::vector<float>> values;
  std::vector<SafetensorsTensor> tensors;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = input->get_next().value();
    for (const char* const name : {"encoder_ids", "ids", "labels", "weights"}) {
      const auto found = batch.find(name);
      if (found == batch.end()) continue;
      const HostArray& array = found->second;
      const std::vector<int64_t>& shape = array.shape;
      if (step == 0)
        tensors.push_back({name, SafetensorsType::kF32, {kSteps * shape[0], shape[1]}, 0});
      for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
        values[name].push_back(array.dtype == DType::kF32
                                   ? array.data<float>()[i]
                                   : static_cast<float>(array.data<int32_t>()[i]));
    }
  }
  values["losses"] = losses_of(directory);
  tensors.push_back({"losses", SafetensorsType::kF32, {kSteps, 1}, 0});
  const fs::path scratch = directory / "scratch";
  fs::create_directories(scratch);
  SafetensorsWriter writer(scratch, {tensors});
  for (const SafetensorsTensor& each : tensors) writer.write(values.at(each.name));
  writer.finish();
  fs::rename(scratch / "model.safetensors", directory / "training.safetensors");
}

// PyTorch's steps have neither auxiliary losses nor jitter.
void leave_routers_alone(ExperimentConfig& config) {
  for_each_block(lm_of(config).stacked_transformer_tpl, [](TransformerBlock::HParams& block) {
    if (!block.ffn_tpl.holds<MoeFeedForward::HParams>()) return;
    auto& router = block.ffn_tpl.as<MoeFeedForward::HParams>().router_tpl.as<TopKRouter::HParams>();
    router.load_balance_weight = router.jitter = 0.0;
  });
}

// Needs TESSERA_PYTHON to name a Python that has transformers.
TEST_CASE("fifty steps in bf16 follow PyTorch within the spread of its own seeds", "[full]") {
  const std::string python = python_with("transformers");
  if (python.empty()) {
    WARN("skipped: no Python with transformers (TESSERA_PYTHON)");
    return;
  }
  const TemporaryDirectory directory;
  std::string folders;
  for (const std::string& name : hf_golden_names()) {
    ExperimentConfig config = hf_experiment(name, StackStyle::kRepeated);
    auto& task = config.task.as<SingleTask::HParams>();
    task.dtypes = DTypePolicy{.compute = DType::kBF16};
    task.learner.optimizer_tpl = AdamW::HParams{.learning_rate = 1e-3};
    leave_routers_alone(config);
    const fs::path run = directory / name;
    import_hf(config, hf_golden(name), run);
    train_hf(config, run, kSteps);
    write_training(config, run);
    folders += fmt::format(" {} {}", run.string(), hf_golden(name).string());
  }
  const std::string command = fmt::format("{} {}/tests/golden/hugging_face.py --check-training{}",
                                          python, TESSERA_SOURCE_DIR, folders);
  REQUIRE(std::system(command.c_str()) == 0);
}

}  // namespace
}  // namespace tessera
