// SPDX-License-Identifier: Apache-2.0
// Stage 5: speed. Each algorithm that cuBLASLt proposes, each kernel beside the roofline of its
// bytes and FLOPs, and whole steps beside their predictions.
#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/bench_cases.h"
#include "core/check/run_graph.h"
#include "core/graph/mesh.h"
#include "core/io/file.h"
#include "core/passes/cost.h"
#include "core/passes/local_passes.h"
#include "core/passes/spmd/lower.h"
#include "plugins/cuda/check/items.h"
#include "plugins/cuda/check/product_check.h"
#include "plugins/cuda/check/runs.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/stream.h"
#include "plugins/cuda/gemm/cublaslt.h"
#include "plugins/cuda/gemm/make_product.h"
#include "plugins/loader.h"
#include "tasks/hardware/hardware.h"

namespace tessera::cuda {
namespace {

double tera_per_second(double flops, double milliseconds) { return 1e-9 * flops / milliseconds; }

// The memory's bytes per second by its clock and width: two transfers in a clock cycle.
double memory_bandwidth(const Context& context) {
  return 2.0 * 1e3 * context.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
         context.attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
}

// ---- Matrix products

std::optional<double> own_time(Context& context, const ProductShape& shape) {
  const std::unique_ptr<Product> product = make_reference_product(context, shape);
  TrialMemory memory(context);
  const WorkTimer timer(context);
  const ProductOperands operands =
      random_operands(context, memory, timer.stream(), shape, product->scratch_bytes());
  if (!memory.complete() || !timer.has_memory()) return std::nullopt;
  return timer.least_time([&] {
    product->enqueue(timer.stream(), operands);
    return true;
  });
}

Row product_row(Device& gpu, const std::string& name, const ProductShape& shape) {
  Context& context = context_of(gpu);
  const GemmShape& s = shape.matrices;
  const double flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  Row row = {{"product", name},
             {"dtypes", fmt::format("{} {}", shape.fp8 ? "8-bit" : dtype_name(s.input),
                                    dtype_name(s.output))},
             {"m n k", fmt::format("{} {} {}", s.m, s.n, s.k)}};
  if (const std::optional<double> own = own_time(context, shape))
    row.emplace_back("own TFLOP/s", tera_per_second(flops, *own));
  const bool uses_library = product_settings().kind != ProductSettings::Kind::kReference &&
                            context.part<CublasLtHandle>().library() != nullptr;
  const std::vector<float> times =
      uses_library ? cublaslt_candidate_times(context, shape) : std::vector<float>();
  if (times.empty()) return row;
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  const double peak = gpu.peak_flops(s.input) * (shape.fp8 ? 2.0 : 1.0);  // 8 bits at twice 16's.
  row.insert(row.end(), {{"first", tera_per_second(flops, times.front())},
                         {"best", tera_per_second(flops, *least)},
                         {"worst", tera_per_second(flops, *most)},
                         {"best is", 1.0 + static_cast<double>(least - times.begin())},
                         {"of", static_cast<double>(times.size())},
                         {"% of peak", 100.0 * 1e12 * tera_per_second(flops, *least) / peak}});
  return row;
}

Findings time_product(const ModelProduct& product) {
  const std::unique_ptr<Device> gpu = make_gpu();
  if (const std::string why = why_no_product(*gpu, product.shape); !why.empty())
    return {.skipped = why};
  return {.rows = {product_row(*gpu, product.name, product.shape)}};
}

// ---- Other kernels

// Memory of a value: random floats, integers below a bound, true.
CUdeviceptr made_value(Context& context, TrialMemory& memory, CUstream stream, const Type& type,
                       int64_t integers) {
  const CUdeviceptr address = memory.allocate(type.bytes());
  if (address == 0) return 0;
  if (type.dtype == DType::kF32 || type.dtype == DType::kBF16) {
    fill_with_random(context, stream, address, type.elements(), dtype_bytes(type.dtype));
    return address;
  }
  std::vector<double> values(static_cast<size_t>(type.elements()));
  uint32_t state = 1;
  for (double& value : values) {
    state = state * 1664525u + 1013904223u;
    value = type.dtype == DType::kBool ? 1.0 : static_cast<double>((state >> 8) % integers);
  }
  const std::vector<std::byte> bytes = encoded(type.dtype, values);
  context.check(context.driver().cuMemcpyHtoDAsync(address, bytes.data(), bytes.size(), stream),
                "copying operands");
  context.check(context.driver().cuStreamSynchronize(stream), "copying operands");
  return address;
}

// In milliseconds.
double kernel_time(Device& gpu, const Graph& graph, const Node& node, int64_t integers) {
  Context& context = context_of(gpu);
  const std::unique_ptr<Kernel> kernel = gpu.prepare(graph, node);
  TrialMemory memory(context);
  const WorkTimer timer(context);
  std::vector<DeviceAddress> inputs, outputs;
  const auto make = [&](ValueId id) {
    return DeviceAddress(made_value(context, memory, timer.stream(), graph.type(id), integers));
  };
  for (const ValueId id : node.inputs) inputs.push_back(make(id));
  for (const ValueId id : node.outputs) outputs.push_back(make(id));
  const DeviceAddress scratch(memory.allocate(kernel->scratch_bytes()));
  if (!memory.complete() || !timer.has_memory()) fail("the GPU has not enough memory");
  const auto time = timer.least_time([&] {
    static_cast<CudaKernel&>(*kernel).enqueue(timer.stream(), {inputs, outputs, scratch});
    return true;
  });
  CHECK(time.has_value(), "no run was refused");
  return *time;
}

Row kernel_row(Device& gpu, const BenchCase& bench, const Graph& graph, const Node& node) {
  const double seconds = 1e-3 * kernel_time(gpu, graph, node, bench.integers);
  const double bytes = node_bytes(graph, node), flops = node_flops(graph, node);
  const DType dtype = graph.type(node.inputs.front()).dtype;
  // At the datasheet's rates.
  const double roofline =
      std::max(bytes / memory_bandwidth(context_of(gpu)), flops / gpu.peak_flops(dtype));
  return {{"case", bench.name},
          {"op", std::string(node.op->name)},
          {"ms", 1e3 * seconds},
          {"GB/s", 1e-9 * bytes / seconds},
          {"TFLOP/s", 1e-12 * flops / seconds},
          {"roofline ms", 1e3 * roofline},
          {"% of roofline", 100.0 * roofline / seconds}};
}

Findings time_kernels(const BenchCase& bench) {
  Findings findings;
  const std::unique_ptr<Device> gpu = make_gpu();
  const Mesh mesh;
  const Graph graph = fuse(decompose(lower(traced_bench(bench), mesh),
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
            .attention = {{1, 16, 2, 1, 16}}};
  return {.batch = 64,
          .seq = 1024,
          .embed = 2048,
          .vocab = 50304,
          .loss_rows = 8192,
          .weights = 64 << 20,
          .attention = {{32, 1024, 12, 12, 64}, {8, 2048, 16, 16, 128}, {8, 2048, 16, 4, 128}}};
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
  for (const ModelProduct& product : model_products(options.tiny ? 40 : 16384, options.tiny))
    items.push_back({5, "time product " + product.name, [=] { return time_product(product); }});
  for (const BenchCase& bench : bench_cases(bench_sizes(options.tiny)))
    items.push_back({5, "time " + bench.name, [bench] { return time_kernels(bench); }});
  for (const Preset& preset : presets(options.tiny))
    items.push_back({5, fmt::format("preset {}", preset.name),
                     [=] { return time_preset(preset, options); }, 600});
  return items;
}

}  // namespace tessera::cuda
