// SPDX-License-Identifier: Apache-2.0
// Stage 5: speed. Each kernel beside the roofline of its bytes and FLOPs, libraries beside our own
// kernels, and whole steps beside their predictions.
#include <algorithm>
#include <cctype>
#include <memory>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/bench_cases.h"
#include "core/compile/cost.h"
#include "core/compile/decompose.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/mesh.h"
#include "core/io/file.h"
#include "core/ops/fp8.h"
#include "plugins/cuda/check/items.h"
#include "plugins/cuda/check/node_trial.h"
#include "plugins/cuda/check/runs.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/loader.h"
#include "tasks/hardware/hardware.h"

namespace tessera::cuda {
namespace {

// The memory's bytes per second by its clock and width: two transfers in a clock cycle.
double memory_bandwidth(const Context& context) {
  return 2.0 * 1e3 * context.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
         context.attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
}

// A node that a library computes is compared with our own kernels.
Row kernel_row(Device& gpu, const BenchCase& bench, const Graph& graph, const Node& node) {
  NodeTrial trial(gpu, graph, node, bench.integers);
  const NodeTrial::Run run = trial.run();
  const bool is_own = run.implementation == kOwnKernels;
  const NodeTrial::Run own = is_own ? run : trial.run_own();
  if (!is_own) trial.expect_equal(run, own);
  const double bytes = node_bytes(graph, node), flops = node_flops(graph, node);
  const DType dtype = graph.type(node.inputs.front()).dtype;
  // At the datasheet's rates; 8 bits at twice those of 16.
  const double peak = gpu.peak_flops(dtype) * (node.op == &kFp8ProductOp ? 2.0 : 1.0);
  const double roofline = std::max(bytes / memory_bandwidth(context_of(gpu)), flops / peak);
  return {{"case", bench.name},
          {"op", std::string(node.op->name)},
          {"by", run.implementation},
          {"ms", 1e3 * run.seconds},
          {"own ms", 1e3 * own.seconds},
          {"GB/s", 1e-9 * bytes / run.seconds},
          {"TFLOP/s", 1e-12 * flops / run.seconds},
          {"roofline ms", 1e3 * roofline},
          {"% of roofline", 100.0 * roofline / run.seconds}};
}

Findings time_kernels(const BenchCase& bench) {
  Findings findings;
  const std::unique_ptr<Device> gpu = make_gpu();
  const Graph graph = fuse(decompose(lower(traced_bench(bench), Mesh()),
                                     [&](const OpDef& op) { return gpu->has_kernel(op); }));
  for (const Node& node : graph.nodes()) {
    if (node.inputs.empty() || node.op->op_class == OpClass::kView) continue;
    note_failures(findings, std::string(node.op->name),
                  [&] { findings.rows.push_back(kernel_row(*gpu, bench, graph, node)); });
  }
  return findings;
}

BenchSizes bench_sizes(bool tiny) {
  if (tiny)
    return {.batch = 1,
            .seq = 8,
            .embed = 64,
            .vocab = 50,
            .loss_rows = 8,
            .weights = 512,
            .routed_rows = 32,
            .experts = 4,
            .expert_embed = 16,
            .expert_mlp = 32,
            .attention = {{1, 16, 2, 1, 16}},
            .products = {{40, 16, 24}}};
  return {.batch = 64,
          .seq = 1024,
          .embed = 2048,
          .vocab = 50304,
          .loss_rows = 8192,
          .weights = 64 << 20,
          .attention = {{32, 1024, 12, 12, 64}, {8, 2048, 16, 16, 128}, {8, 2048, 16, 4, 128}},
          // Weights of GPT-2 124M (three) and 1558M, of a Llama of 1.3B (two), and square ones.
          .products = {{16384, 768, 2304},
                       {16384, 768, 3072},
                       {16384, 768, 50304},
                       {16384, 1600, 6400},
                       {16384, 2048, 5504},
                       {16384, 2048, 32768},
                       {16384, 4096, 4096},
                       {16384, 8192, 8192}}};
}

// ---- Whole steps

struct Preset {
  const char *name, *experiment, *batch_knob;
  int64_t batch;  // Halved until the plan fits the GPU.
  std::vector<std::string> values;
};

std::vector<Preset> presets(bool tiny) {
  if (tiny)
    return {{"tiny",
             "bench.Gpt2Tiny",
             "global_batch_size",
             2,
             {"num_layers=1", "model_dims=16", "num_heads=2", "seq_len=16"}}};
  // GELU by tanh, as in docs/performance.md: cuBLASLt has it as an epilogue, but not the exact one.
  const std::string gelu =
      "task.model.lm_tpl.stacked_transformer_tpl.block_tpl.ffn_tpl.activation_tpl.approximate=true";
  const std::vector<std::string> small = {"seq_len=1024", gelu};
  const std::vector<std::string> medium = {"num_layers=24", "model_dims=1024", "num_heads=16",
                                           "seq_len=2048", gelu};
  const std::vector<std::string> large = {"num_layers=48", "model_dims=1600", "num_heads=25",
                                          "seq_len=1024", gelu};
  return {{"GPT-2 124M T1024", "bench.Gpt2Base", "global_batch_size", 64, small},
          {"GPT-2 350M T2048", "bench.Gpt2Base", "global_batch_size", 16, medium},
          {"GPT-2 1558M T1024", "bench.Gpt2Base", "global_batch_size", 16, large},
          {"c4.Spmd1B",
           "c4.Spmd1B",
           "percore_batch_size",
           32,
           {"data=synthetic", "ici_mesh_shape=[1,1,1]"}},
          {"c4.Spmd1B, products of 8 bits",
           "c4.Spmd1B",
           "percore_batch_size",
           32,
           {"data=synthetic", "ici_mesh_shape=[1,1,1]", "task.dtypes.matmul=fp8"}}};
}

std::vector<std::string> preset_arguments(const Preset& preset, int64_t batch, bool tiny) {
  std::vector<std::string> values = preset.values;
  values.insert(values.end(),
                {"compute_dtype=bf16", fmt::format("num_train_steps={}", tiny ? 6 : 16),
                 "task.train.save_interval_steps=0", "task.train.eval_interval_steps=0",
                 fmt::format("{}={}", preset.batch_knob, batch)});
  std::vector<std::string> arguments = settings(values);
  arguments.insert(arguments.begin(), fmt::format("--exp={}", preset.experiment));
  return arguments;
}

// The name of this GPU for --hardware: "h200" for "NVIDIA H200", "rtx4090" for "NVIDIA GeForce RTX
// 4090".
std::string hardware_name(const std::string& title) {
  std::string letters;
  for (const char c : title)
    if (c != ' ') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string& name : hardware_names(own_plugins("hardware")))
    if (letters.find(name) != std::string::npos) return name;
  return title;
}

// What --mode=plan --hardware=… predicts, added to the row. The virtual GPU counts as an H200.
void add_prediction(Row& row, const std::filesystem::path& directory,
                    std::vector<std::string> arguments, bool tiny) {
  const std::string file = directory.string() + "_plan.json";
  try {
    const std::string hardware = tiny ? "h200" : hardware_name(shared_context(0)->name());
    arguments.insert(arguments.end(),
                     {"--mode=plan", "--hardware=" + hardware, "--output=" + file});
    run(directory, arguments);
    const Json plan = parse_json(read_file(file), file);
    const Json& prediction = plan.at("prediction");
    row.insert(row.end(), {{"predicted ms", 1e3 * prediction.at("step_seconds").as_number()},
                           {"predicted MFU %", 100.0 * prediction.at("mfu").as_number()}});
  } catch (const Error& error) {
    row.emplace_back("prediction", fmt::format("none: {}", error.what()));
  }
}

// Trains with the largest batch that fits. Returns its size.
int64_t train_what_fits(const Preset& preset, const std::filesystem::path& directory, bool tiny) {
  for (int64_t batch = preset.batch;; batch /= 2) {
    std::filesystem::remove_all(directory);
    std::vector<std::string> arguments = preset_arguments(preset, batch, tiny);
    arguments.emplace_back("--device=cuda");
    try {
      run(directory, arguments);
      return batch;
    } catch (const Error& error) {
      const bool too_large = std::string(error.what()).find("the plan needs") != std::string::npos;
      if (!too_large || batch == 1) throw;
    }
  }
}

// The median of the steps after the first ones.
Findings time_preset(const Preset& preset, const CheckOptions& options) {
  Findings findings;
  const std::filesystem::path directory = options.output / "runs/preset";
  const int64_t batch = train_what_fits(preset, directory, options.tiny);
  std::vector<std::pair<double, Json>> steps;
  for (const auto& [step, line] : training_lines(directory))
    if (step > 4) steps.emplace_back(line.at("step_time").as_number(), line);
  std::ranges::sort(steps, {}, &std::pair<double, Json>::first);
  const auto& [seconds, line] = steps.at(steps.size() / 2);
  Row row = {{"preset", preset.name},
             {"batch", static_cast<double>(batch)},
             {"step ms", 1e3 * seconds},
             {"tokens/s", line.at("tokens_per_sec").as_number()},
             {"MFU %", 100.0 * line.at("mfu").as_number()}};
  std::filesystem::remove_all(directory);
  add_prediction(row, directory, preset_arguments(preset, batch, options.tiny), options.tiny);
  findings.rows.push_back(std::move(row));
  return findings;
}

}  // namespace

std::vector<Item> timing_items(const CheckOptions& options) {
  std::vector<Item> items;
  for (const BenchCase& bench : bench_cases(bench_sizes(options.tiny))) {
    items.push_back({5, "time " + bench.name, [bench] { return time_kernels(bench); }});
    if (bench.name.starts_with("product/")) items.back().tests = kCublasLtName;
  }
  for (const Preset& preset : presets(options.tiny))
    items.push_back({5, fmt::format("preset {}", preset.name),
                     [=] { return time_preset(preset, options); }, 600});
  return items;
}

}  // namespace tessera::cuda
