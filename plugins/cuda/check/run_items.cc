// SPDX-License-Identifier: Apache-2.0
// Whole runs of runexp. Stage 4: curves of the GPU against the CPU's; the same bits without a CUDA
// graph and after a resume; several GPUs against one. Stage 5: steps of recipes, and each of their
// launches, beside what the plan predicts.
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "plugins/cuda/check/items.h"
#include "plugins/cuda/device/context.h"
#include "plugins/cuda/device/graph.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/setting_words.h"
#include "plugins/loader.h"
#include "plugins/runexp/runexp.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/run/report/metrics_log.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;
using Words = std::vector<std::string>;

constexpr size_t kTraced = 3;  // Steps of a recipe.

// Runs runexp in the folder of a run; its output is the item's. Error with its message if it fails.
void run(const filesystem::path& folder, Words arguments, const Words& settings = {}) {
  arguments.push_back("--job_log_dir=" + folder.string());
  for (const std::string& each : settings) arguments.insert(arguments.end(), {"--set", each});
  std::ostringstream errors;
  const int code = run_runexp(arguments, std::cout, errors);
  std::cerr << errors.str();
  if (code != 0) fail("exit code {}: {}", code, errors.str());
}

// Returns the values of a metric in each step.
std::vector<double> values_of(const filesystem::path& folder, const std::string& metric) {
  MetricsLog log(folder / "metrics.jsonl");
  log.update();
  std::vector<double> values;
  if (log.series().contains(metric))
    for (const SeriesPoint& point : log.series().at(metric).points())
      values.push_back(point.count == 1 ? point.sum : std::nan(""));
  return values;
}

// ---- Curves

// Largest relative differences of losses from the CPU's. In f32 sums have another order; in bf16
// they are those between meshes (docs/testing.md, "The same numbers on every mesh").
struct Bounds {
  double first, later;
};
constexpr Bounds kSameBits{0.0, 0.0};

class Curves {
 public:
  Curves(CheckOptions options, std::string dtype)
      : options_(std::move(options)),
        dtype_(std::move(dtype)),
        steps_(options_.tiny ? 6 : 50),
        bounds_(dtype_ == "f32" ? Bounds{1e-6, 1e-4} : Bounds{0x1p-9, 0x1p-6}) {}

  Findings on_one_gpu() {
    train("cpu", {});
    trial("gpu", "cpu", bounds_, {"--device=cuda"});
    {
      const ScopedVariable off(kGraphVariable, "off");
      trial("gpu without a CUDA graph", "gpu", kSameBits, {"--device=cuda"});
    }
    // As if it had been killed after it saved in the middle.
    findings_.note("resumed", [&] {
      filesystem::remove_all(folder("resumed"));
      filesystem::copy(folder("gpu"), folder("resumed"), filesystem::copy_options::recursive);
      const std::string last = fmt::format("checkpoints/step_{:010}", steps_);
      if (filesystem::remove_all(folder("resumed") / last) == 0) fail("the run has no {}", last);
      go_on("resumed", {"--device=cuda"});
      compare("resumed", "gpu", kSameBits);
    });
    return findings_;
  }

  // Sharded weights, or tensor parallelism.
  Findings on_two_gpus(const std::string& strategy) {
    int count = 0;
    check_cuda(load_driver().cuDeviceGetCount(&count), "counting GPUs");
    if (count < 2) return Findings::not_tested("this machine has one GPU");
    train("cpu", {});
    trial("two gpus " + strategy, "cpu", bounds_,
          {"--device=cuda", "--devices=2", "--set", "strategy=" + strategy, "--set",
           strategy == "tensor" ? "ici_mesh_shape=[1,1,2]" : "ici_mesh_shape=[1,2,1]"});
    return findings_;
  }

 private:
  filesystem::path folder(const std::string& name) const {
    return options_.place("runs", name + " " + dtype_);
  }
  // Trains from the beginning.
  void train(const std::string& name, const Words& arguments) {
    filesystem::remove_all(folder(name));
    go_on(name, arguments);
  }
  void trial(const std::string& name, const std::string& other, const Bounds& bounds,
             const Words& arguments) {
    findings_.note(name, [&] {
      train(name, arguments);
      compare(name, other, bounds);
    });
  }
  void go_on(const std::string& name, Words arguments) const {
    arguments.emplace_back("--exp=quickstart.CharLm");
    Words settings = {
        "input.path=" + (own_plugins("hardware") / "zen3_2c.toml").string(),  // Any text.
        fmt::format("num_train_steps={}", steps_),
        "compute_dtype=" + dtype_,
        "sample_length=0",
        fmt::format("task.train.save_interval_steps={}", steps_ / 2),
        "task.train.eval_interval_steps=0"};
    if (options_.tiny) {
      arguments.emplace_back("--threads=1");
      settings.insert(settings.end(),
                      {"num_layers=1", "model_dims=16", "num_heads=2", "hidden_dims=24",
                       "seq_len=16", "global_batch_size=2", "warmup_steps=2"});
    }
    run(folder(name), arguments, settings);
  }

  // Losses, and where bits must be the same also norms of gradients.
  void compare(const std::string& name, const std::string& other, const Bounds& bounds) {
    double largest = 0.0;
    std::string problem;
    std::vector<double> got, want;
    for (const std::string metric : {"grad_norm", "loss"}) {
      got = values_of(folder(name), metric), want = values_of(folder(other), metric);
      if (got.size() != steps_ || want.size() != steps_)
        fail("{} steps, and {} has {}, expected {}", got.size(), other, want.size(), steps_);
      for (size_t i = 0; i < steps_ && (metric == "loss" || bounds.first == 0.0); ++i) {
        const double difference = std::abs(got[i] - want[i]) / std::abs(want[i]);
        const double bound = i == 0 ? bounds.first : bounds.later;
        largest = std::max(largest, difference);
        if (!(difference <= bound) && problem.empty())
          problem = fmt::format("step {}: {} is {}, expected {} as in {}, within {} of it", i + 1,
                                metric, got[i], want[i], other, bound);
      }
    }
    findings_.add_row("run|first loss|last loss|compared with|largest difference", name,
                      got.front(), got.back(), other, largest);
    if (!problem.empty()) fail("{}", problem);
  }

  CheckOptions options_;
  std::string dtype_;
  size_t steps_;
  Bounds bounds_;
  Findings findings_;
};

// ---- Recipes

struct Preset {
  const char *name, *experiment, *batch_knob;
  int64_t batch;  // Halved until the plan fits the GPU.
  Words values;

  std::string exp() const { return fmt::format("--exp={}", experiment); }
};

std::vector<Preset> presets(bool tiny) {
  // GELU by tanh, as in docs/performance.md: cuBLASLt has it as an epilogue, but not the exact one.
  const std::string gelu =
      "task.model.lm_tpl.stacked_transformer_tpl.block_tpl.ffn_tpl.activation_tpl.approximate=true";
  const auto gpt2 = [&](const char* name, int64_t batch, int layers, int dims, int heads, int seq) {
    return Preset{name,
                  "bench.Gpt2Base",
                  "global_batch_size",
                  batch,
                  {fmt::format("num_layers={}", layers), fmt::format("model_dims={}", dims),
                   fmt::format("num_heads={}", heads), fmt::format("seq_len={}", seq), gelu}};
  };
  if (tiny) {
    std::vector<Preset> all = {gpt2("GPT-2 tiny", 2, 1, 16, 2, 16),
                               gpt2("GPT-2 tiny, wider", 2, 1, 24, 2, 16),
                               gpt2("GPT-2 tiny, longer", 1, 1, 16, 2, 24)};
    for (Preset& each : all) each.values.emplace_back("vocab_size=264");
    return all;
  }
  const Words on_one_gpu = {"data=synthetic", "ici_mesh_shape=[1,1,1]"};
  Words fp8 = on_one_gpu;
  fp8.emplace_back("task.dtypes.matmul=fp8");
  return {gpt2("GPT-2 124M T1024", 64, 12, 768, 12, 1024),
          gpt2("GPT-2 350M T2048", 16, 24, 1024, 16, 2048),
          gpt2("GPT-2 1558M T1024", 16, 48, 1600, 25, 1024),
          {"c4.Spmd1B", "c4.Spmd1B", "percore_batch_size", 32, on_one_gpu},
          {"c4.Spmd1B, products of 8 bits", "c4.Spmd1B", "percore_batch_size", 32, fp8}};
}

// Names the hardware file of this GPU: "h200" for "NVIDIA H200", "rtx4090" for "NVIDIA GeForce RTX
// 4090". GPUs without one, such as the virtual one, count as an H100.
std::string hardware_of_gpu() {
  std::string letters;
  for (const char c : shared_context(0)->name())
    if (c != ' ') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string& name : hardware_names(own_plugins("hardware")))
    if (letters.find(name) != std::string::npos) return name;
  return "h100";
}

// Adds the launches of a step by op and line of layer code: what they took in the traced steps
// beside their price.
void add_launches(const Json& priced, const Json& traced, const std::string& recipe,
                  Findings& findings) {
  std::map<std::string, std::array<double, 3>> all;
  for (size_t i = 0; i < priced.as_array().size(); ++i) {
    const Json &launch = priced.as_array()[i], &again = traced.as_array().at(i);
    auto& [times, price, took] =
        all[fmt::format("{} {} {}", launch.at("phase").as_string(), launch.at("op").as_string(),
                        launch.at("source").as_string())];
    const double count = launch.at("count").as_number();
    const bool is_measured = again.find("measured") != nullptr;
    times += count;
    price += 1e3 * count * launch.at("seconds").as_number();
    took += is_measured ? 1e3 * count * again.at("seconds").as_number() : std::nan("");
  }
  for (const auto& [name, sums] : all)
    findings.add_row("recipe|times|measured ms|price ms|measured / price|launch", recipe, sums[0],
                     sums[2], sums[1], sums[2] / sums[1], name);
}

// Trains with the largest batch that fits, which it appends to the settings. The last steps are
// traced; others run as a graph, if they can. False if there is no room for one sequence.
bool train_what_fits(const filesystem::path& folder, const Preset& preset, bool tiny,
                     Words& settings) {
  const size_t steps = tiny ? 7 : 20;
  settings.push_back(fmt::format("num_train_steps={}", steps));
  for (int64_t batch = preset.batch; batch > 0; batch /= 2) {
    settings.push_back(fmt::format("{}={}", preset.batch_knob, batch));
    filesystem::remove_all(folder);
    try {
      run(folder,
          {preset.exp(), "--device=cuda", fmt::format("--profile={}:{}", steps - kTraced, kTraced)},
          settings);
      return true;
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("the plan needs") == std::string_view::npos) throw;
    }
    settings.pop_back();
  }
  return false;
}

Findings time_preset(const Preset& preset, const CheckOptions& options) {
  const filesystem::path folder = options.place("runs", preset.name);
  Words settings = preset.values;
  settings.insert(settings.end(), {"compute_dtype=bf16", "task.train.save_interval_steps=0",
                                   "task.train.eval_interval_steps=0"});
  if (!train_what_fits(folder, preset, options.tiny, settings))
    return Findings::not_tested("the GPU has not enough memory for one sequence");
  const std::string hardware = hardware_of_gpu();
  run(folder, {"--mode=calibrate", "--trace=" + folder.string(), "--hardware=" + hardware,
               "--device=cuda"});
  const auto planned = [&](const std::string& costs) {
    const std::string file = folder.string() + "_plan.json";
    Words words = {preset.exp(), "--mode=plan", "--hardware=" + hardware, "--output=" + file};
    if (!costs.empty()) words.push_back("--launch_costs=" + costs);
    run(folder, words, settings);
    return parse_json(read_file(file), file).at("prediction");
  };
  const Json priced = planned(""), measured = planned(folder.string());
  // The median of the steps between the first and the traced ones.
  const std::vector<double> times = values_of(folder, "step_time");
  std::vector<size_t> order;
  for (size_t i = options.tiny ? 2 : 4; i + kTraced < times.size(); ++i) order.push_back(i);
  std::ranges::sort(order, {}, [&](size_t i) { return times[i]; });
  const size_t median = order.at(order.size() / 2);
  Findings findings;
  findings.add_row(
      "preset|batch|step ms|tokens/s|MFU %|predicted ms|predicted MFU %|by launches ms|priced as",
      preset.name, settings.back().substr(settings.back().find('=') + 1), 1e3 * times[median],
      values_of(folder, "tokens_per_sec").at(median), 100.0 * values_of(folder, "mfu").at(median),
      1e3 * priced.at("step_seconds").as_number(), 100.0 * priced.at("mfu").as_number(),
      1e3 * measured.at("step_seconds").as_number(), hardware);
  add_launches(priced.at("launches"), measured.at("launches"), preset.name, findings);
  return findings;
}

}  // namespace

std::vector<Item> run_items(const CheckOptions& options) {
  std::vector<Item> items;
  for (const std::string dtype : {"f32", "bf16"})
    items.push_back(
        {4, "curve " + dtype, [=] { return Curves(options, dtype).on_one_gpu(); }, 900});
  for (const std::string strategy : {"fsdp", "tensor"}) {
    items.push_back({4, "curve f32 on 2 GPUs, " + strategy,
                     [=] { return Curves(options, "f32").on_two_gpus(strategy); }, 600});
    items.back().tests = kNcclName;
  }
  for (const Preset& preset : presets(options.tiny))
    items.push_back({5, fmt::format("preset {}", preset.name),
                     [=] { return time_preset(preset, options); }, 600});
  return items;
}

}  // namespace tessera::cuda
