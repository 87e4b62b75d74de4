// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/cost.h"
#include "core/compile/fuse/fuse.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/processor.h"
#include "core/graph/mesh.h"
#include "core/graph/op.h"
#include "core/graph/rules.h"
#include "core/graph/trace.h"
#include "core/io/file.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tasks/planner/calibrate/fit.h"
#include "tasks/planner/calibrate/kernel_timer.h"
#include "tasks/planner/prices/roofline.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr double kKernelSeconds = 0.08, kQuickSeconds = 0.002;
// Operands of products come from behind the caches of the cores, as in a step.
constexpr int64_t kColdBytes = int64_t{16} << 20;
constexpr double kLeastOperations = 1e3;  // Least rate that hardware files accept.
constexpr double kStart = 10.0;           // The first guess of attention's KernelRate::start.
constexpr double kGiga = 1e9, kMicro = 1e-6;
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16};

class Calibration {
 public:
  explicit Calibration(const CalibrateOptions& options)
      : options_(options),
        is_quick_(options.size == CalibrationSize::kQuick),
        timer_(make_cpu_devices(options.devices, options.threads),
               is_quick_ ? kQuickSeconds : kKernelSeconds) {}

  Hardware run() {
    describe();
    measure_launch();
    measure_copies();
    measure_products();
    measure_kernels();
    measure_links();
    return hardware_;
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) const {
    options_.report(fmt::format(format, std::forward<Args>(args)...));
  }

  void describe() {
    const Device& device = *timer_.devices().front();
    const int threads = std::max<int>(1, options_.threads / static_cast<int>(options_.devices));
    constexpr size_t kTitle = 40;
    const std::string processor = processor_name().substr(0, kTitle);
    hardware_.title =
        fmt::format("{}, {}", processor.empty() ? "CPU" : processor, level_name(cpu_level()));
    hardware_.kind = HardwareKind::kCpu;
    hardware_.processor = SharedProcessor{.devices = options_.devices, .threads = threads};
    hardware_.memory.bytes = available_memory() / options_.devices;
    report("{} x {}", options_.devices, device.description());
    for (const DType dtype : kDTypes) {
      // Devices compute at the same time, on no more processors than there are.
      const double peak = device.peak_flops(dtype);
      (dtype == DType::kBF16 ? hardware_.peak_flops.bf16 : hardware_.peak_flops.f32) = peak;
      report("{:<44} {:>9.1f} GFLOP/s", fmt::format("peak of {}", dtype_name(dtype)), peak / kGiga);
    }
  }

  void measure_launch() {
    const Graph graph = copy_graph(512);
    hardware_.launch_overhead = timer_.launch_seconds(graph, graph.nodes().front());
    report("{:<44} {:>9.2f} us", "a launch that does next to nothing",
           hardware_.launch_overhead / kMicro);
  }

  void measure_copies() {
    const int64_t most = is_quick_ ? int64_t{1} << 18 : int64_t{1} << 28;
    std::vector<CopyPoint> points;
    for (int64_t bytes = int64_t{1} << 14; bytes <= most; bytes *= 4) {
      const Graph graph = copy_graph(bytes);
      const double seconds = timer_.launch_seconds(graph, graph.nodes().front());
      // The overhead is subtracted, since prices add it to each launch.
      const double rate =
          to_double(bytes) / std::max(seconds - hardware_.launch_overhead, 0.02 * seconds);
      points.push_back({bytes, rate});
      report("{:<44} {:>9.1f} GB/s", fmt::format("copy, {} KiB read and written", bytes >> 10),
             rate / kGiga);
    }
    hardware_.memory.bandwidth = points.back().bandwidth;
    hardware_.efficiency.copies = 1.0;  // The bandwidth is that of a copy.
    hardware_.memory.copies = std::move(points);
  }

  void measure_products() {
    std::deque<Graph> graphs;
    std::vector<MeasuredLaunch> timed;
    for (const DType dtype : kDTypes)
      for (const ProductShape& shape : calibration_products(options_.size)) {
        const Graph& graph = graphs.emplace_back(product_graph(shape, dtype));
        const Node& node = graph.nodes().front();
        const double seconds = timer_.launch_seconds(graph, node, is_quick_ ? 0 : kColdBytes);
        timed.push_back({&graph, &node, seconds});
        const double rate = node_flops(graph, node) / seconds;
        report("{:<44} {:>9.1f} GFLOP/s  {:>5.1f} % of the peak",
               fmt::format("product of {}, {} x {} x {}", dtype_name(dtype), shape.m, shape.n,
                           shape.k),
               rate / kGiga, 100.0 * rate / hardware_.peak_flops(dtype));
      }
    add_product_points(hardware_, timed, Mesh());
    for (const auto& points : {*hardware_.products->f32, *hardware_.products->bf16})
      for (const ProductPoint& point : points)
        hardware_.efficiency.products = std::max(hardware_.efficiency.products, point.share);
  }

  void measure_kernels() {
    std::deque<Graph> graphs;
    std::vector<MeasuredLaunch> timed;
    for (const BenchCase& row : calibration_cases(options_.size)) {
      const Graph& graph = graphs.emplace_back(calibration_graph(row));
      for (const Node& node : graph.nodes()) {
        // Products have a curve; casts and the like around the op under test have cases of theirs.
        if (node.op == &kEinsumOp || node.op->op_class == OpClass::kView) continue;
        const double operations = kernel_operations(graph, node);
        const DType dtype =
            graph.type(node.inputs.empty() ? node.outputs[0] : node.inputs[0]).dtype;
        if (operations <= 0.0 || (dtype != DType::kF32 && dtype != DType::kBF16)) continue;
        timed.push_back({&graph, &node, timer_.launch_seconds(graph, node, 0, row.integers)});
        KernelRate& rate = hardware_.kernels[std::string(node.op->name)];
        auto& of_dtype = dtype == DType::kBF16 ? rate.bf16 : rate.f32;
        if (!of_dtype) of_dtype = std::max(kLeastOperations, operations / timed.back().seconds);
        if (node.op == &kAttentionOp || node.op == &kAttentionGradOp) rate.start = kStart;
      }
    }
    for (const FittedField& field : fit_hardware(hardware_, timed, Mesh(), {"kernels."}))
      report("{:<44} {:>9.2f} {}", field.name,
             field.name.ends_with(".start") ? field.after : field.after / kGiga,
             field.name.ends_with(".start") ? "multiply-adds" : "G operations/s");
  }

  // Measures links with small and large messages.
  void measure_links() {
    const int64_t devices = std::max<int64_t>(2, options_.devices);
    const KernelTimer timer(make_cpu_devices(devices, options_.threads),
                            is_quick_ ? kQuickSeconds : 4.0 * kKernelSeconds);
    std::deque<std::vector<Graph>> graphs;
    std::vector<MeasuredLaunch> timed;
    double most = 0.0;  // Bytes per second.
    for (const OpDef* const op : {&kAllGatherOp, &kReduceScatterOp, &kAllReduceOp})
      for (const int64_t bytes : {int64_t{1} << 10, int64_t{1} << (is_quick_ ? 16 : 22)}) {
        const Graph& graph = graphs.emplace_back(collective_graphs(*op, devices, bytes))[0];
        const Node& node = graph.nodes().front();
        timed.push_back({&graph, &node, timer.collective_seconds(graphs.back())});
        most = std::max(most, to_double(sent_bytes(graph, node)) / timed.back().seconds);
      }
    DeviceLink& link = hardware_.link = {.bandwidth = 4.0 * most, .latency = timed[0].seconds};
    hardware_.network = link;
    hardware_.efficiency.links = 0.25;
    fit_hardware(hardware_, timed, Mesh({{"data", devices}}), {"efficiency.links", "link."});
    link.bandwidth *= std::exchange(hardware_.efficiency.links, 1.0);
    hardware_.network = link;
    report("{:<44} {:>9.2f} us, {:.2f} GB/s a device",
           fmt::format("collectives of {} devices of this process", devices), link.latency / kMicro,
           link.bandwidth / kGiga);
  }

  const CalibrateOptions& options_;
  bool is_quick_;
  KernelTimer timer_;
  Hardware hardware_;
};

std::string comment_of(const CalibrateOptions& options) {
  return fmt::format(
      "Measured by runexp --mode=calibrate{} on {:%Y-%m-%d}: {} of {} threads together, on\n"
      "{}, with its {} kernels. All of it is what kernels reached\n"
      "while all devices computed. `network` was not measured: it is `link`.",
      options.size == CalibrationSize::kQuick ? " --smoke (rough figures)" : "",
      fmt::gmtime(std::time(nullptr)),
      options.devices == 1 ? "1 device" : fmt::format("{} devices", options.devices),
      options.threads, processor_name(), level_name(cpu_level()));
}

BenchSizes sizes_of(CalibrationSize size) {
  if (size == CalibrationSize::kQuick)
    return {.batch = 2,
            .seq = 16,
            .embed = 64,
            .vocab = 264,
            .loss_rows = 32,
            .weights = 4096,
            .routed_rows = 64,
            .experts = 4,
            .expert_embed = 32,
            .expert_mlp = 64,
            .attention = {{1, 32, 2, 2, 16}, {1, 32, 2, 2, 32}},
            .recurrences = {{1, 32, 2, 16, 16}}};
  return {.batch = 8,
          .seq = 256,
          .embed = 256,
          .vocab = 8192,
          .loss_rows = 512,
          .weights = 1 << 19,
          .routed_rows = 2048,
          .experts = 8,
          .expert_embed = 256,
          .expert_mlp = 512,
          .attention = {{4, 256, 4, 4, 32},
                        {4, 256, 4, 4, 64},
                        {2, 512, 4, 4, 64},
                        {2, 256, 4, 2, 128}},
          .recurrences = {{2, 256, 4, 64, 64}}};
}

// Cases on x["row embed"] and an equal y. Data movement is priced by its bytes alone.
void add_cases(std::vector<BenchCase>& cases, const std::string& dtype, const BenchSizes& s) {
  const std::string axes = fmt::format("[\"row={} embed={}\"]", s.batch * s.seq, s.embed);
  using Trace = std::function<void(const Tensors&)>;
  const auto add = [&](const char* name, const Trace& trace) {
    cases.push_back({fmt::format("{}/{}", name, dtype),
                     {dtype + axes, dtype + axes},
                     trace,
                     /*gradient=*/false});
  };
  const DType own = dtype == "bf16" ? DType::kBF16 : DType::kF32;
  add("add", [](const Tensors& in) { in[0] + in[1]; });
  add("mul", [](const Tensors& in) { in[0] * in[1]; });
  add("div", [](const Tensors& in) { in[0] / in[1]; });
  add("scale", [](const Tensors& in) { scale(in[0], 0.5); });
  add("exp", [](const Tensors& in) { exp(in[0]); });
  add("tanh", [](const Tensors& in) { tanh(in[0]); });
  add("relu", [](const Tensors& in) { relu(in[0]); });
  add("relu_grad", [](const Tensors& in) { relu_grad(in[0], in[1]); });
  add("gelu", [](const Tensors& in) { gelu(in[0]); });
  add("gelu_grad", [](const Tensors& in) { gelu_grad(in[0], in[1]); });
  add("gelu_tanh", [](const Tensors& in) { gelu_tanh(in[0]); });
  add("gelu_tanh_grad", [](const Tensors& in) { gelu_tanh_grad(in[0], in[1]); });
  add("silu", [](const Tensors& in) { silu(in[0]); });
  add("silu_grad", [](const Tensors& in) { silu_grad(in[0], in[1]); });
  add("sigmoid", [](const Tensors& in) { sigmoid(in[0]); });
  add("fused/sum", [](const Tensors& in) { (in[0] + in[1]) + in[0] * in[1]; });
  add("fused/gate", [](const Tensors& in) { silu(in[0]) * in[1]; });
  add("fused/gate gradient",
      [](const Tensors& in) { silu_grad(in[0], in[1] * in[0]) + in[1] * silu(in[0]); });
  add("fused/gelu", [](const Tensors& in) { gelu_tanh(in[0] + in[1]); });
  add("reduce_sum", [](const Tensors& in) { reduce_sum(in[0], "embed"); });
  add("reduce_sum of rows", [](const Tensors& in) { reduce_sum(in[0], "row"); });
  add("reduce_max", [](const Tensors& in) { reduce_max(in[0], "embed"); });
  add("squared_norm", [](const Tensors& in) { squared_norm({in[0]}); });
  add("softmax", [](const Tensors& in) { softmax(in[0], "embed"); });
  add("sort", [](const Tensors& in) { sort(in[0], "embed"); });
  const DType other = own == DType::kBF16 ? DType::kF32 : DType::kBF16;
  add("cast", [other](const Tensors& in) { cast(in[0], other); });
}

}  // namespace

void check_output(const CalibrateOptions& options) {
  const fs::path& file = options.output;
  if (file.empty()) fail("--output needs the name of a file");
  if (fs::is_directory(file))
    fail("--output={}: is a folder; give the name of a file in it", file.string());
  if (fs::exists(file) && !options.replaces)
    fail("{} exists; give --restart to replace it, or another --output=FILE", file.string());
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::is_directory(folder))
    fail("--output={}: {} is not a folder", file.string(), folder.string());
  if (access(folder.c_str(), W_OK) != 0)
    fail("--output={}: cannot write to {}", file.string(), folder.string());
}

Hardware calibrate(const CalibrateOptions& options) {
  check_output(options);
  const Hardware hardware = Calibration(options).run();
  write_file_atomically(options.output, hardware_text(hardware, comment_of(options)));
  return read_hardware(options.output);
}

std::vector<BenchCase> calibration_cases(CalibrationSize size) {
  const BenchSizes sizes = sizes_of(size);
  std::vector<BenchCase> cases = bench_cases(sizes);
  std::erase_if(cases,
                [](const BenchCase& each) { return each.name.starts_with("dense product"); });
  for (const char* dtype : {"f32", "bf16"}) add_cases(cases, dtype, sizes);
  return cases;
}

Graph calibration_graph(const BenchCase& row) { return fuse(traced_bench(row)); }

std::vector<ProductShape> calibration_products(CalibrationSize size) {
  if (size == CalibrationSize::kQuick) return {{64, 64, 64}, {32, 128, 64}, {256, 32, 32}};
  std::vector<ProductShape> shapes;
  // Rows of a batch, widths of models.
  for (const int64_t m : {64, 512, 2048})
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{32, 64},
                                                                       {64, 64},
                                                                       {64, 256},
                                                                       {256, 64},
                                                                       {128, 512},
                                                                       {512, 128},
                                                                       {256, 256},
                                                                       {1024, 256},
                                                                       {256, 1024},
                                                                       {512, 2048},
                                                                       {2048, 512},
                                                                       {8192, 256}})
      shapes.push_back({m, n, k});
  // Gradients of weights: sums over rows.
  for (const int64_t k : {1024, 4096})
    for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{
             {64, 64}, {64, 256}, {128, 512}, {256, 256}, {256, 1024}, {1024, 256}, {8192, 256}})
      shapes.push_back({m, n, k});
  shapes.push_back({1024, 1024, 1024});
  return shapes;
}

Graph product_graph(const ProductShape& shape, DType dtype) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const bool is_gradient = shape.k >= 1024 && shape.k > std::min(shape.m, shape.n);
  const auto array = [&](const char* name, const char* first, int64_t rows, const char* second,
                         int64_t columns) {
    return input(name, InputKind::kBatch,
                 make_type(dtype, {{first, rows, {}}, {second, columns, {}}}));
  };
  const Tensor x = is_gradient ? array("x", "sum", shape.k, "row", shape.m)
                               : array("x", "row", shape.m, "sum", shape.k);
  const Tensor w = array("w", "sum", shape.k, "column", shape.n);
  output("y", einsum(x, w, over("sum")));
  return graph;
}

std::vector<Graph> collective_graphs(const OpDef& op, int64_t devices, int64_t bytes) {
  const int64_t part_elements = bytes / dtype_bytes(DType::kF32) / devices;
  const Type whole = make_type(DType::kF32, {{"x", part_elements * devices, {}}});
  const Type part = make_type(DType::kF32, {{"x", part_elements, {}}});
  std::vector<int64_t> group(static_cast<size_t>(devices));
  std::iota(group.begin(), group.end(), 0);
  std::vector<Graph> graphs(group.size());
  for (const int64_t device : group) {
    Graph& graph = graphs[static_cast<size_t>(device)];
    Node node{.op = &op, .inputs = {ValueId(0)}};
    node.attributes = {
        {key::kAxis, "x"}, {key::kMeshAxes, {"data"}}, {key::kGroup, group}, {key::kIndex, device}};
    graph.add_input("x", InputKind::kBatch, &op == &kAllGatherOp ? part : whole);
    graph.add_node(node, {&op == &kReduceScatterOp ? part : whole});
  }
  return graphs;
}

Graph copy_graph(int64_t bytes) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const int64_t columns = 64, elements = bytes / 2 / dtype_bytes(DType::kF32);
  const Type type = make_type(DType::kF32, {{"row", std::max<int64_t>(1, elements / columns), {}},
                                            {"column", columns, {}}});
  output("y", scale(input("x", InputKind::kBatch, type), 0.5));
  return graph;
}

}  // namespace tessera
