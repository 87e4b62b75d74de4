// SPDX-License-Identifier: Apache-2.0
// Stage 1: versions, the GPU, its kernels as the driver has loaded them, and one launch of each;
// stage 3: these launches under compute-sanitizer (initcheck is left out: the device zeroes all
// memory that it allocates); and stage 2: every kernel against the CPU. The expected values are
// computed here, in double precision by the reference interpreter, or by the CPU device where bits
// must be equal. What the virtual GPU computed is not stored to compare with: its rounding of
// approximate functions and its order of sums in tensor cores are not a GPU's.
// Stage 5, kernels: each at the sizes of models beside the roofline of its bytes and FLOPs, and
// libraries beside our own kernels, with which their results are compared.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/check/bench_cases.h"
#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/compile/cost.h"
#include "core/compile/decompose.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/devices/cpu/device.h"
#include "core/graph/mesh.h"
#include "core/ops/fp8.h"
#include "core/ops/random.h"
#include "plugins/cuda/attention/attention_choice.h"
#include "plugins/cuda/check/items.h"
#include "plugins/cuda/communicator/nccl.h"
#include "plugins/cuda/device/context.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/images.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/setting_words.h"
#include "plugins/cuda/gemm/cublaslt.h"
#include "plugins/cuda/gemm/node_trial.h"
#include "plugins/cuda/gemm/product.h"
#include "plugins/loader.h"
#include "tasks/run/modes/selfcheck.h"
#ifdef TESSERA_HAS_CUDNN
#include "plugins/cuda/attention/cudnn_library.h"
#endif

namespace tessera::cuda {
namespace {

std::string cuda_version(int version) {
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

Findings versions() {
  Findings findings;
  const auto add = [&](std::string_view what, const std::string& version) {
    findings.add_row("what|version", what, version);
  };
  add("tessera", std::string(build_stamp()));
  add("toolkit of the build", cuda_version(CUDA_VERSION));
  int driver = 0;
  check_cuda(load_driver().cuDriverGetVersion(&driver), "asking for the driver's version");
  add("driver", cuda_version(driver));
  for (const std::string_view name : {kCublasLtName, kCudnnName, kNcclName}) {
    const std::string why_not = why_no_library(std::string(name));
    add(name, why_not.empty() ? "found" : why_not);
  }
  add("device", make_gpu()->description());
  return findings;
}

Findings describe_gpus() {
  Findings findings;
  int count = 0;
  check_cuda(load_driver().cuDeviceGetCount(&count), "counting GPUs");
  for (int i = 0; i < count; ++i) {
    const std::shared_ptr<Context> gpu = shared_context(i);
    gpu->make_current();
    size_t free = 0, total = 0;
    gpu->check(gpu->driver().cuMemGetInfo(&free, &total), "asking for free memory");
    findings.add_row(
        "GPU|name|capability|multiprocessors|MHz|memory MHz|bus bits|L2 MiB|memory GiB|free GiB", i,
        gpu->name(), gpu->compute_capability() / 10.0, gpu->multiprocessors(),
        1e-3 * gpu->attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        1e-3 * gpu->attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        gpu->attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        0x1p-20 * gpu->attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        0x1p-30 * static_cast<double>(total), 0x1p-30 * static_cast<double>(free));
  }
  return findings;
}

// Adds a row for each kernel. "code" is the architecture of the machine code that runs: another one
// than the GPU's means that the driver compiled PTX.
void list_kernels(const Context& context, const Image& image, Findings& findings) {
  const Driver& driver = context.driver();
  CUmodule module = nullptr;
  context.check(driver.cuModuleLoadDataEx(&module, image.fatbin, 0, nullptr, nullptr),
                "loading kernels");
  unsigned count = 0;
  context.check(driver.cuModuleGetFunctionCount(&count, module), "counting kernels");
  std::vector<CUfunction> functions(count);
  context.check(driver.cuModuleEnumerateFunctions(functions.data(), count, module),
                "listing kernels");
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    context.check(driver.cuFuncGetName(&name, function), "asking for the name of a kernel");
    // The driver loads a function when it is asked for by name; until then it has no attributes.
    CUfunction loaded = nullptr;
    context.check(driver.cuModuleGetFunction(&loaded, module, name), "loading a kernel");
    const auto value = [&](CUfunction_attribute attribute) {
      int number = 0;
      context.check(driver.cuFuncGetAttribute(&number, attribute, function),
                    "asking for an attribute of a kernel");
      return number;
    };
    findings.add_row(
        "kernel|registers|local bytes|shared bytes|threads|code",
        fmt::format("{}.{}", image.file, name), value(CU_FUNC_ATTRIBUTE_NUM_REGS),
        value(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), value(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
        value(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), value(CU_FUNC_ATTRIBUTE_BINARY_VERSION));
  }
  driver.cuModuleUnload(module);
}

Findings list_all_kernels() {
  Findings findings;
  const std::shared_ptr<Context> context = shared_context(0);
  context->make_current();
  for (const Image& image : kernel_images())
    findings.note(std::string(image.file), [&] { list_kernels(*context, image, findings); });
  return findings;
}

Findings check_on_gpu(const std::vector<OpCase>& rows) {
  const CasesReport report = check_cases(rows, *make_gpu());
  Findings findings{.failures = report.problems};
  findings.add_row("op|cases|largest error, of its tolerance", rows.front().op->name, report.cases,
                   report.error);
  return findings;
}

// Checks that random numbers have the CPU's bits: initial weights and dropout masks must not depend
// on the device.
Findings check_random_bits() {
  Findings findings;
  const std::unique_ptr<Device> gpu = make_gpu(), cpu = make_cpu_device(1);
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kRandomUniformOp && row.op != &kDropoutOp) continue;
    findings.note(case_name(row, DType::kF32), [&] {
      const Graph graph = traced_case(row, DType::kF32, Mesh());
      const ReferenceInputs inputs = rounded(graph, sample_inputs(graph, row.ids));
      if (run_graph(graph, inputs, *gpu) != run_graph(graph, inputs, *cpu))
        fail("the GPU's bits are not the CPU's");
    });
  }
  return findings;
}

Findings check_steps(DType dtype) {
  Findings findings;
  const StepBits first = selfcheck_steps(*make_gpu(), dtype);
  const std::string difference = bit_difference(selfcheck_steps(*make_gpu(), dtype), first);
  if (!difference.empty()) findings.failures.push_back("run twice: " + difference);
  const StepBits expected = selfcheck_steps(*make_cpu_device(1), dtype);
  const double tolerance = dtype == DType::kF32 ? 1e-5 : 0x1p-7;
  for (size_t i = 0; i < first.losses.size(); ++i) {
    const double got = first.losses[i], want = expected.losses[i];
    findings.add_row("step|loss|loss on the CPU", i + 1, got, want);
    if (!(std::abs(got - want) <= tolerance * want))
      findings.failures.push_back(
          fmt::format("loss of step {}: got {}, expected {}", i + 1, got, want));
  }
  return findings;
}

// Adds an item for all rows of the same name.
void add_cases(std::vector<Item>& items, int64_t stage, const std::string& prefix,
               const std::vector<OpCase>& rows,
               const std::function<std::string(const OpCase&)>& name_of) {
  std::vector<std::string> names;
  for (const OpCase& row : rows)
    if (std::ranges::count(names, name_of(row)) == 0) names.push_back(name_of(row));
  for (const std::string& name : names) {
    std::vector<OpCase> same;
    std::ranges::copy_if(rows, std::back_inserter(same),
                         [&](const OpCase& row) { return name_of(row) == name; });
    items.push_back({stage, prefix + name, [same] { return check_on_gpu(same); }});
  }
}

// Adds products of each layout with every epilogue, at sizes that no tile divides and some that
// tiles do.
void add_products(std::vector<Item>& items, bool fp8, bool tiny) {
  for (const std::string layouts : {"nn", "nt", "tn", "tt"}) {
    std::vector<FusedProducts> sizes = {{1, 8, 16}, {33, 17, 70}, {128, 256, 64}, {200, 136, 1000}};
    if (tiny) sizes = {{19, 24, 21}};
    std::vector<OpCase> rows;
    for (FusedProducts& each : sizes) {
      each.layouts = layouts;
      each.fp8 = fp8;
      std::ranges::move(fused_product_cases(each), std::back_inserter(rows));
    }
    items.push_back({2, fmt::format("products{} {}", fp8 ? " of 8 bits" : "", layouts),
                     [rows] { return check_on_gpu(rows); }});
  }
}

// ---- Speed

struct TimedKernel {
  std::string by;
  double milliseconds = 0.0;
  NodeTrial::Places places;
};

// Throws an Error, with an element, unless both have the same results but for rounding, as far as a
// million elements at either end of each show.
void expect_equal(NodeTrial& trial, const Graph& graph, const Node& node,
                  const TimedKernel& library, const TimedKernel& own) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Type& type = graph.type(node.outputs[i]);
    const int64_t count = std::min<int64_t>(type.elements(), 1 << 20);
    double tolerance = node.op == &kFp8ProductOp ? kFp8KernelTolerance : 2e-5;
    if (type.dtype == DType::kBF16) tolerance = 0x1p-6;
    const std::vector<double> got = trial.ends(library.places, i, count),
                              want = trial.ends(own.places, i, count);
    double largest = 1e-3;
    for (const double each : want) largest = std::max(largest, std::abs(each));
    for (size_t at = 0; at < want.size(); ++at)
      if (!(std::abs(got[at] - want[at]) <= tolerance * largest))
        fail("element {} of the ends of result {} is {} by {}, but {} by {}", at, i, got[at],
             library.by, want[at], own.by);
  }
}

// Returns the memory's bytes per second by its clock and width: two transfers in a clock cycle.
double memory_bandwidth(const Context& context) {
  return 2.0 * 1e3 * context.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
         context.attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
}

TimedKernel timed(NodeTrial& trial, const WorkTimer& timer, Device& gpu, const Graph& graph,
                  const Node& node) {
  const std::unique_ptr<Kernel> kernel = gpu.prepare(graph, node);
  auto& it = static_cast<CudaKernel&>(*kernel);
  TimedKernel result{.by = std::string(it.implementation()), .places = trial.places_for(it)};
  if (!trial.has_memory() || !timer.has_memory()) fail("the GPU has not enough memory");
  result.milliseconds = timer
                            .least_time([&] {
                              it.enqueue(timer.stream(), {trial.inputs(), result.places.outputs,
                                                          result.places.scratch});
                              return true;
                            })
                            .value();
  return result;
}

// Times a node, and compares a library that computes it with our own kernels.
void time_node(Device& gpu, const BenchCase& bench, const Graph& graph, const Node& node,
               Findings& findings) {
  NodeTrial trial(graph, node, context_of(gpu), bench.integers);
  const WorkTimer timer(context_of(gpu));
  const TimedKernel run = timed(trial, timer, gpu, graph, node);
  TimedKernel own = run;
  if (run.by != kOwnKernels) {
    const ScopedVariable products(kGemmVariable, "reference"), attention(kAttentionVariable, "own");
    own = timed(trial, timer, gpu, graph, node);
    expect_equal(trial, graph, node, run, own);
  }
  const double seconds = 1e-3 * run.milliseconds;
  const double bytes = node_bytes(graph, node), flops = node_flops(graph, node);
  const DType dtype = graph.type(node.inputs.front()).dtype;
  // At the datasheet's rates; 8 bits at twice those of 16.
  const double peak = gpu.peak_flops(dtype) * (node.op == &kFp8ProductOp ? 2.0 : 1.0);
  const double roofline = std::max(bytes / memory_bandwidth(context_of(gpu)), flops / peak);
  findings.add_row("case|op|by|ms|own ms|GB/s|TFLOP/s|roofline ms|% of roofline", bench.name,
                   node.op->name, run.by, run.milliseconds, own.milliseconds,
                   1e-9 * bytes / seconds, 1e-12 * flops / seconds, 1e3 * roofline,
                   100.0 * roofline / seconds);
}

Findings time_kernels(const BenchCase& bench) {
  Findings findings;
  const std::unique_ptr<Device> gpu = make_gpu();
  const Graph graph = fuse(decompose(lower(traced_bench(bench), Mesh()),
                                     [&](const OpDef& op) { return gpu->has_kernel(op); }));
  for (const Node& node : graph.nodes())
    if (!node.inputs.empty() && node.op->op_class != OpClass::kView)
      findings.note(std::string(node.op->name),
                    [&] { time_node(*gpu, bench, graph, node, findings); });
  return findings;
}

BenchSizes bench_sizes(bool tiny) {
  BenchSizes sizes;
  if (tiny) {
    sizes.batch = 1, sizes.seq = 8, sizes.embed = 64, sizes.vocab = 50, sizes.loss_rows = 8;
    sizes.weights = 512, sizes.routed_rows = 32, sizes.experts = 4, sizes.expert_embed = 16;
    sizes.expert_mlp = 32, sizes.attention = {{1, 16, 2, 1, 16}}, sizes.products = {{40, 16, 24}};
    sizes.recurrences = {{1, 16, 2, 16, 16}};
    return sizes;
  }
  sizes.batch = 64, sizes.seq = 1024, sizes.embed = 2048, sizes.vocab = 50304;
  sizes.loss_rows = 8192, sizes.weights = 64 << 20;
  sizes.attention = {{32, 1024, 12, 12, 64}, {8, 2048, 16, 16, 128}, {8, 2048, 16, 4, 128}};
  // Weights of GPT-2 124M (three) and 1558M, of a Llama of 1.3B (two), and square ones.
  constexpr int64_t kWeights[] = {768,  2304, 768,  3072,  768,  50304, 1600, 6400,
                                  2048, 5504, 2048, 32768, 4096, 4096,  8192, 8192};
  for (size_t i = 0; i < std::size(kWeights); i += 2)
    sizes.products.push_back({16384, kWeights[i], kWeights[i + 1]});
  return sizes;
}

}  // namespace

std::vector<Item> kernel_items(bool tiny) {
  std::vector<Item> items = {{1, "versions", versions},
                             {1, "GPUs", describe_gpus},
                             {1, "kernels in the binary", list_all_kernels}};
  const auto op_name = [](const OpCase& row) { return std::string(row.op->name); };
  const std::vector<OpCase> all = all_op_cases();
  std::vector<OpCase> firsts;  // One case of each op: every kernel loads and launches.
  std::set<const OpDef*> seen;
  for (const OpCase& row : all)
    if (seen.insert(row.op).second) firsts.push_back(row);
  add_cases(items, 1, "launch ", firsts, family_of);
  for (const std::string tool : {"memcheck", "racecheck", "synccheck"}) {
    const size_t begin = items.size();
    add_cases(items, 3, tool + " ", firsts, family_of);
    for (size_t i = begin; i < items.size(); ++i) items[i].tool = tool;
  }
  add_cases(items, 2, "op ", all, op_name);
  items.push_back({2, "random bits", check_random_bits});
  add_cases(items, 2, "tiles of ", tiled_cases(tiny), op_name);
  for (const bool fp8 : {false, true}) add_products(items, fp8, tiny);
  items.push_back({2, "products unpacked", [] { return check_on_gpu(fused_packed_cases()); }});
  for (const DType dtype : {DType::kF32, DType::kBF16})
    items.push_back({2, fmt::format("training steps {}", dtype_name(dtype)),
                     [dtype] { return check_steps(dtype); }});
  for (const BenchCase& bench : bench_cases(bench_sizes(tiny))) {
    items.push_back({5, "time " + bench.name, [bench] { return time_kernels(bench); }});
    if (bench.name.starts_with("product/")) items.back().tests = kCublasLtName;
  }
  return items;
}

std::unique_ptr<Device> make_gpu() { return std::move(make_cuda_devices(1, 1).front()); }

std::string why_no_library(const std::string& name) {
  std::string why;
  if (name == kCublasLtName) find_cublaslt(why);
  if (name == kNcclName) find_nccl(why);
#ifdef TESSERA_HAS_CUDNN
  if (name == kCudnnName) find_cudnn(why);
#else
  if (name == kCudnnName) why = "this build was configured without cudnn.h";
#endif
  return why;
}

}  // namespace tessera::cuda
