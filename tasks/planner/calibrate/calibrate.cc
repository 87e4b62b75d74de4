// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/cost.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/processor.h"
#include "core/graph/op.h"
#include "core/io/file.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
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

}  // namespace tessera
