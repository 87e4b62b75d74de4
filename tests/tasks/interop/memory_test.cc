// SPDX-License-Identifier: Apache-2.0
// Import and export hold one piece of a model in memory at a time, whatever its size.
#include <cstdlib>
#include <fstream>

#include "core/devices/cpu/device.h"
#include "core/graph/trace.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "layers/fprop_scope.h"
#include "tasks/interop/import.h"
#include "tasks/run/session/model_state.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/compiler.h"
#include "tests/support/run_with.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

// A value of /proc/self/status in bytes; 0 if it is missing.
int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return 1024 * std::atoll(line.c_str() + name.size() + 1);
  return 0;
}

// The peak resident memory during an action minus the resident memory before it.
template <typename Action>
int64_t growth_of(Action action) {
  const int64_t before = status_bytes("VmRSS");
  std::ofstream("/proc/self/clear_refs") << "5";  // Resets the peak.
  if (before == 0 || status_bytes("VmHWM") > before + (8 << 20)) return -1;
  action();
  return status_bytes("VmHWM") - before;
}

// Members that Llama and Mixtral have in common.
std::string sizes_of(int64_t num_layers, int64_t model_dims) {
  return fmt::format(
      R"("vocab_size": 2048, "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": 4,
         "num_key_value_heads": 4, "max_position_embeddings": 20, "tie_word_embeddings": true)",
      model_dims, num_layers);
}

HfConfig llama_of(int64_t num_layers, int64_t model_dims) {
  return read_hf_config(fmt::format(R"({{"model_type": "llama", {}, "intermediate_size": {}}})",
                                    sizes_of(num_layers, model_dims), 4 * model_dims),
                        "llama");
}

HfConfig mixtral_of(int64_t num_layers, int64_t model_dims) {
  return read_hf_config(fmt::format(R"({{"model_type": "mixtral", {}, "intermediate_size": {},
                       "num_local_experts": 4, "num_experts_per_tok": 2}})",
                                    sizes_of(num_layers, model_dims), model_dims),
                        "mixtral");
}

void write_model(const HfModel& model, const std::vector<HfTensor>& tensors,
                 const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  write_file_atomically(directory / "config.json", hf_config_text(model, "float32"));
  SafetensorsPlan plan;
  for (const HfTensor& tensor : tensors)
    plan.tensors.push_back({tensor.name, SafetensorsType::kF32, tensor.shape, 0});
  SafetensorsWriter writer(directory, plan);
  float next = 0.0f;
  for (const HfTensor& tensor : tensors) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    for (float& value : values) value = next += 1e-7f;
    writer.write(values);
  }
  writer.finish();
}

struct Growth {
  int64_t model = 0, import = 0, export_ = 0;  // In bytes; -1: not available.
};

// Writes a model of this configuration, imports and exports it.
Growth growth_with(const HfConfig& hf_config, StackStyle stack) {
  const TemporaryDirectory directory;
  const ExperimentConfig config = hf_experiment(model_of_hf(hf_config, stack));
  const std::unique_ptr<BaseTask> task = config.task.instantiate();
  const ParameterTable& table = task->model().parameters();
  const HfModel model = hf_model_of(config);
  const std::vector<HfTensor> tensors = hf_tensors(model, table);
  write_model(model, tensors, directory / "hf");
  Growth growth{.model = 4 * table.elements()};

  Graph graph;
  {
    const Mesh mesh;
    const AxisRules rules;
    const TraceScope trace(graph, mesh, rules);
    Features features;
    features.tensors["ids"] = input("batch/ids", InputKind::kBatch,
                                    make_type(DType::kI32, {{"batch", 1, {}}, {"seq", 1, {}}}));
    const FpropScope scope(parameter_inputs(table), features);
    output("logits", task->model().logits(features));
  }
  const auto devices = make_cpu_devices(1, 1);
  {
    Executor executor(*devices[0]);
    executor.add_program(graph, {});
    executor.allocate();
    for (const Parameter& each : table.parameters())
      executor.shards(each.path)[0].memory.map(HostAccess::kWrite, [](std::span<std::byte> bytes) {
        std::fill(bytes.begin(), bytes.end(), std::byte{1});  // Makes the pages resident.
      });
    const HfFiles files(directory / "hf");
    growth.import = growth_of([&] { read_hf_weights(files, tensors, table, executor); });
    ProcessGroup alone;
    CheckpointStore(directory / "run/checkpoints")
        .add({.step = 0}, checkpoint_arrays(executor), alone);
  }
  growth.export_ = growth_of([&] { export_hf(config, directory / "run", directory / "out"); });
  std::vector<float> before, after;
  const SafetensorsModel first(directory / "hf"), second(directory / "out");
  for (const HfTensor& tensor : tensors) {
    before.resize(static_cast<size_t>(tensor.elements()));
    after.resize(before.size());
    first.read(tensor.name, 0, before);
    second.read(tensor.name, 0, after);
    REQUIRE(before == after);
  }
  return growth;
}

TEST_CASE("import and export hold a piece of the model in memory, not the whole model") {
  if (kSanitized) return skip_test("a sanitizer keeps memory that was freed");
  // 66 MiB in 16 layers, no tensor larger than 2 MiB.
  const HfConfig config = GENERATE(llama_of(16, 256), mixtral_of(16, 256));
  const Growth growth = growth_with(config, StackStyle::kUnrolled);
  if (growth.import < 0 || growth.export_ < 0) {
    WARN("the kernel does not say how much memory is in use");
    return;
  }
  REQUIRE(growth.model > 60 << 20);
  REQUIRE(growth.import < growth.model / 6);
  REQUIRE(growth.export_ < growth.model / 3);
}

TEST_CASE("import and export of a stacked model of a gigabyte hold a piece of it in memory",
          "[full]") {
  // HDF5 reads stacked weights in chunks of 16 MiB, and keeps some of its buffers.
  const Growth growth = growth_with(llama_of(16, 1024), StackStyle::kRepeated);
  if (growth.import < 0 || growth.export_ < 0) return;
  REQUIRE(growth.model > 1000 << 20);
  REQUIRE(growth.import < 40 << 20);
  REQUIRE(growth.export_ < 160 << 20);
}

}  // namespace
}  // namespace tessera
