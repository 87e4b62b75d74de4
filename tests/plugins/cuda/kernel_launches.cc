// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/cuda/kernel_launches.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/fuse/fuse.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/gather.h"
#include "core/ops/grouped_product.h"
#include "core/ops/layout.h"
#include "core/ops/linear_recurrence.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/ops/rotary.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/kernel_check.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

struct Example {
  std::string op;
  Tensors (*build)(const Tensors& in);
  std::vector<std::string> types;  // "float" is each of f32 and bf16.
  bool gradient = false;           // Also its gradient.
  int64_t integers = 4;            // Ids are less than this.
  double product_flops = 0;        // FLOPs of one matrix product.
};

AttentionOptions packed_rows(const Tensors& in) {
  AttentionOptions options{.scale = 0.125};
  options.segment_ids = in[3], options.key_segment_ids = in[4];
  return options;
}

const std::string kRows = "float[\"row=1024 embed=768\"]", kWeights = "f32[\"embed=768\"]";
const std::string kHeads = "float[\"batch=1 seq=256 heads=2 head_dim=64\"]";
const std::string kKeys = "float[\"batch=1 key_seq=256 kv_heads=2 head_dim=64\"]";
const std::string kRecurrence = "float[\"batch=1 seq=32 heads=2 ",
                  kGate = "f32[\"batch=1 seq=32 heads=2\"]";
const std::string kCache = "float[\"batch=8 kv_heads=2 key_seq=1024 head_dim=64\"]";
const std::string kSlot = "f32[\"row=768 column=768\"]", kScalar = "f32[\"\"]";

// Returns examples of row kernels: norms, softmax, cross-entropy and rotary positions.
std::vector<Example> row_examples() {
  return {
      {.op = "rms_norm",
       .build = [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], "embed", 1e-5)}; },
       .types = {kRows, kWeights},
       .gradient = true},
      {.op = "layer_norm",
       .build =
           [](const Tensors& in) {
             return Tensors{layer_norm(in[0], in[1], in[2], "embed", 1e-5)};
           },
       .types = {kRows, kWeights, kWeights},
       .gradient = true},
      {.op = "layer_norm of a sum, and its gradient plus a cotangent",
       .build =
           [](const Tensors& in) {
             const Tensor sum = in[0] + in[1];
             output("sum", sum);
             layer_norm(sum, in[3], in[4], "embed", 1e-5);
             Graph& graph = traced_graph();
             const Node norm(graph.nodes().back());
             return Tensors{traced_gradient(graph, norm)[0] + in[2]};
           },
       .types = {kRows, kRows, kRows, kWeights, kWeights}},
      {.op = "softmax",
       .build = [](const Tensors& in) { return Tensors{softmax(in[0], "column")}; },
       .types = {"float[\"row=256 column=1024\"]"},
       .gradient = true},
      {.op = "cross_entropy",
       .build =
           [](const Tensors& in) { return Tensors{cross_entropy(in[0], in[1], "vocab").loss}; },
       .types = {"float[\"row=16 vocab=50304\"]", "i32[\"row=16\"]"},
       .gradient = true,
       .integers = 50304},
      {.op = "rotary",
       .build = [](const Tensors& in) { return Tensors{rotary(in[0], in[1], "head_dim")}; },
       .types = {"float[\"batch=1 seq=1024 heads=12 head_dim=64\"]", "i32[\"batch=1 seq=1024\"]"},
       .integers = 1024},
  };
}

std::vector<Example> movement_examples() {
  return {
      {.op = "gather",
       .build = [](const Tensors& in) { return Tensors{gather(in[0], in[1], "vocab")}; },
       .types = {"float[\"vocab=2048 embed=768\"]", "i32[\"row=1024\"]"},
       .gradient = true,
       .integers = 2048},
      {.op = "transpose",
       .build = [](const Tensors& in) { return Tensors{transpose(in[0], "heads seq head_dim")}; },
       .types = {"float[\"seq=1024 heads=12 head_dim=64\"]"}},
      {.op = "transpose of a matrix",
       .build = [](const Tensors& in) { return Tensors{transpose(in[0], "embed row")}; },
       .types = {kRows}},
      {.op = "slice",
       .build = [](const Tensors& in) { return Tensors{slice(in[0], "embed", 256, 512)}; },
       .types = {kRows}},
      {.op = "reduce_sum over rows",
       .build = [](const Tensors& in) { return Tensors{reduce_sum(in[0], "row")}; },
       .types = {kRows}},
      {.op = "reduce_sum of rows",
       .build = [](const Tensors& in) { return Tensors{reduce_sum(in[0], "embed")}; },
       .types = {kRows}},
      {.op = "reduce_max of rows",
       .build = [](const Tensors& in) { return Tensors{reduce_max(in[0], "embed")}; },
       .types = {kRows}},
  };
}

std::vector<Example> random_and_optimizer_examples() {
  return {
      {.op = "dropout",
       .build = [](const Tensors& in) { return Tensors{dropout(in[0], 0.1, in[1])}; },
       .types = {kRows, "i32[\"\"]"}},
      {.op = "random_uniform",
       .build =
           [](const Tensors& in) {
             return Tensors{random_uniform({{"row", 1024, {}}, {"embed", 768, {}}}, in[0])};
           },
       .types = {"i32[\"\"]"}},
      {.op = "adam_update",
       .build =
           [](const Tensors& in) {
             const AdamState next = adam_update({in[0], in[1], in[2]}, in[3], in[4], in[5], in[6],
                                                in[7], {.weight_decay = 0.1});
             return Tensors{next.parameter, next.first_moment, next.second_moment};
           },
       .types = {kSlot, kSlot, kSlot, kSlot, kScalar, kScalar, kScalar, "bool[\"\"]"}},
  };
}

// Returns examples for the kernels of each head width.
std::vector<Example> attention_examples() {
  std::vector<Example> examples;
  for (const int width : {32, 64, 128, 256}) {
    const int seq = width == 64 ? 256 : 128;
    const auto type = [&](std::string_view axes) {
      return fmt::format(fmt::runtime(axes), seq, width);
    };
    const std::string keys = type("float[\"batch=1 key_seq={} kv_heads=2 head_dim={}\"]");
    examples.push_back(
        {.op = "attention",
         .build =
             [](const Tensors& in) {
               return Tensors{attention(in[0], in[1], in[2], {.scale = 0.125})};
             },
         .types = {type("float[\"batch=1 seq={} heads=2 head_dim={}\"]"), keys, keys},
         .gradient = true,
         .product_flops = 2.0 * seq * seq * width});  // Half of 2·queries·keys·head_dim; two heads.
  }
  return examples;
}

std::vector<Example> product_examples() {
  return {
      {.op = "attention of packed rows",
       .build =
           [](const Tensors& in) {
             return Tensors{attention(in[0], in[1], in[2], packed_rows(in))};
           },
       .types = {kHeads, kKeys, kKeys, "i32[\"batch=1 seq=256\"]", "i32[\"batch=1 key_seq=256\"]"},
       .integers = 1,
       .product_flops = 2.0 * 256 * 256 * 64},
      {.op = "linear_recurrence",
       .build =
           [](const Tensors& in) {
             return Tensors{linear_recurrence(in[0], in[1], in[2], in[3], in[4]).out};
           },
       .types = {kRecurrence + "key_dim=64\"]", kRecurrence + "key_dim=64\"]",
                 kRecurrence + "value_dim=64\"]", kGate, kGate},
       .gradient = true},
      {.op = "cached_attention",
       .build =
           [](const Tensors& in) {
             return Tensors{cached_attention(in[0], in[1], in[2], in[3], {.scale = 0.125})};
           },
       .types = {"float[\"batch=8 seq=1 heads=4 head_dim=64\"]", kCache, kCache,
                 "i32[\"batch=8\"]"},
       .integers = 1024},
      {.op = "cache_update",
       .build = [](const Tensors& in) { return Tensors{cache_update(in[0], in[1], in[2])}; },
       .types = {kCache, "float[\"batch=8 seq=1 kv_heads=2 head_dim=64\"]", "i32[\"batch=8\"]"},
       .integers = 1023},
      {.op = "einsum, large tiles",
       .build = [](const Tensors& in) { return Tensors{einsum("r e, e m -> r m", in[0], in[1])}; },
       .types = {"float[\"r=1536 e=16\"]", "float[\"e=16 m=1536\"]"},
       .product_flops = 2.0 * 1536 * 1536 * 16},
      {.op = "einsum, small tiles",
       .build = [](const Tensors& in) { return Tensors{einsum("r e, e m -> r m", in[0], in[1])}; },
       .types = {"float[\"r=64 e=768\"]", "float[\"e=768 m=768\"]"},
       .product_flops = 2.0 * 64 * 768 * 768},
      {.op = "fp8_product and its gradient",
       .build =
           [](const Tensors& in) {
             const Tensor y = fp8_product(in[0], in[1], over("e"));
             return gradients(reduce_sum(cast(y * in[2], DType::kF32)), {in[0], in[1]});
           },
       .types = {"float[\"r=256 e=192\"]", "float[\"e=192 m=256\"]", "float[\"r=256 m=256\"]"},
       .product_flops = 2.0 * 256 * 256 * 192},
      {.op = "grouped_product",
       .build =
           [](const Tensors& in) {
             return Tensors{grouped_product(in[0], in[1], in[2], "experts", over("embed"))};
           },
       .types = {"float[\"row=1536 embed=16\"]", "float[\"experts=4 embed=16 mlp=1536\"]",
                 "i32[\"row=1536\"]"},
       .gradient = true,
       .product_flops = 2.0 * 1536 * 16 * 1536},
  };
}

// Returns the number of products of product_flops in one launch. Attention has two; its gradients
// also recompute the probabilities.
int products_of(std::string_view kernel) {
  if (kernel.starts_with("attention_grad_keys")) return 4;
  if (kernel.starts_with("attention_grad_queries")) return 3;
  if (kernel.starts_with("attention_delta") || kernel == "grouped_rows") return 0;
  if (kernel.starts_with("attention_")) return 2;
  return kernel.starts_with("product_") || kernel.starts_with("grouped_") ? 1 : 0;
}

double bytes_of(const std::vector<virtual_gpu::ByteRange>& ranges) {
  double bytes = 0;
  for (const virtual_gpu::ByteRange& range : ranges)
    bytes += static_cast<double>(range.end - range.begin);
  return bytes;
}

KernelLaunch launch_of(const Example& example, const std::string& text,
                       const virtual_gpu::Task& task, const virtual_gpu::AccessLog& log) {
  constexpr std::string_view kBefore = "kernel ";  // "kernel NAME on stream …".
  const auto& [blocks, threads, dynamic] = task.grid;
  const auto product = [](const auto& sizes) {
    return static_cast<int>(sizes[0] * sizes[1] * sizes[2]);
  };
  KernelLaunch launch{.example = text,
                      .kernel = task.name.substr(
                          kBefore.size(), task.name.find(' ', kBefore.size()) - kBefore.size())};
  launch.blocks = product(blocks), launch.threads = product(threads);
  launch.dynamic_shared_bytes = static_cast<int>(dynamic);
  launch.bytes_read = bytes_of(log.reads), launch.bytes_written = bytes_of(log.writes);
  launch.flops = products_of(launch.kernel) * example.product_flops;
  return launch;
}

void run(const Example& example, const std::string& dtype, Device& gpu,
         std::vector<KernelLaunch>& launches) {
  std::vector<std::string> types;
  for (const std::string& type : example.types) types.push_back(type_with(type, dtype));
  std::vector<std::string> different;
  std::ranges::unique_copy(types, std::back_inserter(different));
  std::string text =
      fmt::format("{}{}: {}", example.op, example.gradient ? " and its gradient" : "",
                  fmt::join(different, ", "));
  std::erase(text, '"');
  CAPTURE(text);
  Trial trial(Mesh(), types);
  const Tensors results = example.build(trial.inputs());
  if (example.gradient) traced_gradient(trial.graph(), Node(trial.graph().nodes().front()));
  virtual_gpu::state().kernel_observer = [&](const virtual_gpu::Task& task,
                                             const virtual_gpu::AccessLog& log) {
    launches.push_back(launch_of(example, text, task, log));
  };
  const Graph graph = fuse_norms(trial.graph());
  run_launched(gpu, graph, random_inputs(graph, 7, example.integers));
  virtual_gpu::state().kernel_observer = nullptr;
}

}  // namespace

std::vector<KernelLaunch> example_launches() {
  const ScopedVariable products("TESSERA_CUDA_GEMM", "reference");
  const TestDevices devices;
  std::vector<KernelLaunch> launches;
  for (const auto& family : {row_examples(), movement_examples(), random_and_optimizer_examples(),
                             attention_examples(), product_examples()}) {
    for (const Example& example : family) {
      const bool takes_floats = std::ranges::any_of(
          example.types, [](const std::string& type) { return type.starts_with("float"); });
      for (const std::string dtype : {"bf16", "f32"})
        if (takes_floats || dtype == "f32") run(example, dtype, *devices.gpu, launches);
    }
  }
  return launches;
}

}  // namespace tessera::cuda
