// SPDX-License-Identifier: Apache-2.0
// Stage 4: whole runs of runexp. Curves of the GPU against the CPU's; the same bits without a CUDA
// graph and after a resume; several GPUs against one.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "plugins/cuda/check/features.h"
#include "plugins/cuda/check/items.h"
#include "plugins/cuda/check/runs.h"
#include "plugins/cuda/device/context.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;

// Largest relative differences of losses from the CPU's. In f32 sums have another order; in bf16
// they are those between meshes (docs/testing.md, "The same numbers on every mesh").
struct Bounds {
  double first, later;
};
Bounds bounds_of(const std::string& dtype) {
  return dtype == "f32" ? Bounds{1e-6, 1e-4} : Bounds{0x1p-9, 0x1p-6};
}

// Words in a fixed random order: every machine learns the same text.
void write_text(const filesystem::path& file) {
  static const char* const kWords[] = {"the ", "small ", "blue ",  "bird ", "sings ", "over ",
                                       "a ",   "river",  " and\n", ".\n",   "every ", "light ",
                                       "in ",  "quiet ", "house ", ", "};
  std::string text;
  uint32_t state = 1;
  while (text.size() < 200'000) {
    state = state * 1664525u + 1013904223u;
    text += kWords[state >> 28];
  }
  filesystem::create_directories(file.parent_path());
  write_file_atomically(file, text);
}

class Curves {
 public:
  explicit Curves(const CheckOptions& options)
      : folder_(options.output / "runs"), tiny_(options.tiny), steps_(tiny_ ? 6 : 50) {}

  // Trains in the folder `name`, from the beginning.
  void train(const std::string& name, const std::string& dtype,
             std::vector<std::string> arguments) const {
    filesystem::remove_all(folder_ / name);
    go_on(name, dtype, std::move(arguments));
  }
  Findings on_gpu(const std::string& name, const std::string& dtype,
                  std::vector<std::string> arguments) const {
    arguments.push_back("--device=cuda");
    train(name, dtype, std::move(arguments));
    return close_to(name, "cpu_" + dtype, bounds_of(dtype));
  }
  Findings same_bits(const std::string& name, const std::string& dtype) const {
    train(name, dtype, {"--device=cuda"});
    return close_to(name, "gpu_" + dtype, {0.0, 0.0});
  }
  // Continues a copy of the run as if it had been killed after it saved in the middle.
  Findings resumed(const std::string& dtype) const {
    const std::string name = "resumed_" + dtype;
    filesystem::remove_all(folder_ / name);
    filesystem::copy(folder_ / ("gpu_" + dtype), folder_ / name,
                     filesystem::copy_options::recursive);
    const std::string last = fmt::format("checkpoints/step_{:010}", steps_);
    if (filesystem::remove_all(folder_ / name / last) == 0) fail("the run has no {}", last);
    go_on(name, dtype, {"--device=cuda"});
    return close_to(name, "gpu_" + dtype, {0.0, 0.0});
  }

 private:
  void go_on(const std::string& name, const std::string& dtype,
             std::vector<std::string> arguments) const {
    std::vector<std::string> values = {fmt::format("num_train_steps={}", steps_),
                                       "compute_dtype=" + dtype, "sample_length=0",
                                       fmt::format("task.train.save_interval_steps={}", steps_ / 2),
                                       "task.train.eval_interval_steps=0"};
    if (tiny_)
      values.insert(values.end(), {"num_layers=1", "model_dims=16", "num_heads=2", "hidden_dims=24",
                                   "seq_len=16", "global_batch_size=2", "warmup_steps=2"});
    const filesystem::path text = folder_ / "text.txt";
    if (!filesystem::exists(text)) write_text(text);
    values.push_back("input.path=" + text.string());
    arguments.insert(arguments.begin(), "--exp=quickstart.CharLm");
    if (tiny_) arguments.emplace_back("--threads=1");
    for (const std::string& each : settings(values)) arguments.push_back(each);
    run(folder_ / name, std::move(arguments));
  }

  // With bounds of 0: losses and norms of gradients must have the same bits.
  Findings close_to(const std::string& name, const std::string& expected_name,
                    const Bounds& bounds) const {
    Findings findings;
    const auto got = training_lines(folder_ / name);
    const auto expected = training_lines(folder_ / expected_name);
    if (static_cast<int64_t>(got.size()) != steps_ || got.size() != expected.size())
      fail("{} has {} steps and {} has {}, expected {}", name, got.size(), expected_name,
           expected.size(), steps_);
    double largest = 0.0;
    for (const auto& [step, line] : expected) {
      for (const char* const key : {"loss", "grad_norm"}) {
        const double want = line.at(key).as_number(), have = got.at(step).at(key).as_number();
        const double difference = std::abs(have - want) / std::abs(want);
        const bool is_loss = std::string_view(key) == "loss";
        if (is_loss) largest = std::max(largest, difference);
        const double bound = step == 1 ? bounds.first : bounds.later;
        if ((is_loss || bound == 0.0) && !(difference <= bound) && findings.failures.empty())
          findings.failures.push_back(
              fmt::format("step {}: {} is {}, expected {} as in {}, within {} of it", step, key,
                          have, want, expected_name, bound));
      }
    }
    findings.rows.push_back({{"run", name},
                             {"first loss", got.begin()->second.at("loss").as_number()},
                             {"last loss", got.rbegin()->second.at("loss").as_number()},
                             {"compared with", expected_name},
                             {"largest difference", largest}});
    return findings;
  }

  filesystem::path folder_;
  bool tiny_;
  int64_t steps_;
};

// Sharded weights, or tensor parallelism. Skipped where there is one GPU.
Findings on_two_gpus(const Curves& curves, const std::string& strategy) {
  int count = 0;
  check_cuda(load_driver().cuDeviceGetCount(&count), "counting GPUs");
  if (count < 2) return {.not_tested = "this machine has one GPU"};
  const std::string mesh = strategy == "tensor" ? "[1,1,2]" : "[1,2,1]";
  return curves.on_gpu(
      "two_gpus_" + strategy, "f32",
      {"--devices=2", "--set", "strategy=" + strategy, "--set", "ici_mesh_shape=" + mesh});
}

}  // namespace

std::vector<Item> training_items(const CheckOptions& options) {
  std::vector<Item> items;
  const Curves curves(options);
  const Feature& graph = find_feature("CUDA graph");
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string on_cpu = fmt::format("losses of the CPU {}", dtype);
    const std::string on_gpu = "curve " + dtype;
    items.push_back({4, on_cpu, [=] {
                       curves.train("cpu_" + dtype, dtype, {});
                       return Findings();
                     }});
    items.push_back({4, on_gpu, [=] { return curves.on_gpu("gpu_" + dtype, dtype, {}); }});
    items.back().needs = on_cpu;
    items.push_back({4, on_gpu + ", no CUDA graph: the same bits",
                     [=] { return curves.same_bits("no_graph_" + dtype, dtype); }});
    items.back().needs = on_gpu;
    items.back().environment = {{graph.variable, graph.off}};
    items.push_back(
        {4, on_gpu + ", resumed: the same bits", [=] { return curves.resumed(dtype); }});
    items.back().needs = on_gpu;
  }
  for (const char* const strategy : {"fsdp", "tensor"}) {
    items.push_back({4, std::string("curve f32 on 2 GPUs, ") + strategy,
                     [=] { return on_two_gpus(curves, strategy); }});
    items.back().needs = "losses of the CPU f32";
    items.back().tests = kNcclName;
  }
  return items;
}

}  // namespace tessera::cuda
