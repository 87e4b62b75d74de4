// SPDX-License-Identifier: Apache-2.0
#include "tasks/calibrate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/backend/cpu/device.h"
#include "core/backend/cpu/processor.h"
#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/io/file.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "tasks/calibrate/calibration_cases.h"
#include "tasks/calibrate/hardware_text.h"
#include "tasks/calibrate/kernel_timer.h"
#include "tasks/calibrate/link_timer.h"
#include "tasks/plan/roofline.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr double kKernelSeconds = 0.08, kQuickSeconds = 0.002;
// Operands of products come from behind the caches of the cores, as in a step.
constexpr int64_t kColdBytes = int64_t{16} << 20;
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
      // Of devices that compute at the same time on no more processors than there are.
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

  // Without the overhead, which prices add to each launch.
  double kernel_seconds(const Graph& graph, const Node& node, int64_t cold_bytes = 0,
                        int64_t integers = 2) const {
    const double seconds = timer_.launch_seconds(graph, node, cold_bytes, integers);
    return std::max(seconds - hardware_.launch_overhead, 0.02 * seconds);
  }

  void measure_copies() {
    const int64_t most = is_quick_ ? int64_t{1} << 18 : int64_t{1} << 28;
    std::vector<CopyPoint> points;
    for (int64_t bytes = int64_t{1} << 14; bytes <= most; bytes *= 4) {
      const Graph graph = copy_graph(bytes);
      const double rate = static_cast<double>(bytes) / kernel_seconds(graph, graph.nodes().front());
      points.push_back({bytes, rate});
      report("{:<44} {:>9.1f} GB/s", fmt::format("copy, {} KiB read and written", bytes >> 10),
             rate / kGiga);
    }
    hardware_.memory.bandwidth = points.back().bandwidth;
    hardware_.efficiency.copies = 1.0;  // The bandwidth is that of a copy.
    hardware_.memory.copies = std::move(points);
  }

  void measure_products() {
    hardware_.products.emplace();
    for (const DType dtype : kDTypes) {
      std::vector<ProductPoint> points;
      for (const ProductShape& shape : calibration_products(options_.size)) {
        const Graph graph = product_graph(shape, dtype);
        const ProductSize size{shape.m, shape.n, shape.k, 1, dtype, dtype};
        const double rate =
            size.flops() / kernel_seconds(graph, graph.nodes().front(), is_quick_ ? 0 : kColdBytes);
        const double share = std::clamp(rate / hardware_.peak_flops(dtype), 1e-4, 1.0);
        points.push_back({shape.m, shape.n, shape.k, share});
        report("{:<44} {:>9.1f} GFLOP/s  {:>5.1f} % of the peak",
               fmt::format("product of {}, {} x {} x {}", dtype_name(dtype), shape.m, shape.n,
                           shape.k),
               rate / kGiga, 100.0 * share);
      }
      const auto best = std::ranges::max_element(points, {}, &ProductPoint::share);
      hardware_.efficiency.products = std::max(hardware_.efficiency.products, best->share);
      (dtype == DType::kBF16 ? hardware_.products->bf16 : hardware_.products->f32) =
          std::move(points);
    }
  }

  // Of one op and dtype: launches at several sizes.
  struct Measured {
    double operations = 0.0, seconds = 0.0;
    std::vector<std::pair<double, double>> by_width;  // Of attention: head_dim, seconds a FLOP.
  };

  void measure_kernels() {
    std::map<std::pair<std::string, DType>, Measured> measured;
    for (const BenchCase& row : calibration_cases(options_.size)) {
      const Graph graph = calibration_graph(row);
      for (const Node& node : graph.nodes()) {
        // Products have a curve; casts and the like around the op under test have cases of theirs.
        if (node.op == &kEinsumOp || node.op->op_class == OpClass::kView) continue;
        add_measured(graph, node, row.integers, measured);
      }
    }
    for (const auto& [key, total] : measured) set_rate(key.first, key.second, total);
  }

  void add_measured(const Graph& graph, const Node& node, int64_t integers,
                    std::map<std::pair<std::string, DType>, Measured>& measured) const {
    const double operations = kernel_operations(graph, node);
    if (operations <= 0.0) return;
    const DType dtype = graph.type(node.inputs.empty() ? node.outputs[0] : node.inputs[0]).dtype;
    if (dtype != DType::kF32 && dtype != DType::kBF16) return;
    const double seconds = kernel_seconds(graph, node, 0, integers);
    Measured& total = measured[{std::string(node.op->name), dtype}];
    total.operations += operations;
    total.seconds += seconds;
    if (node.op == &kAttentionOp || node.op == &kAttentionGradOp) {
      const auto width = static_cast<double>(graph.type(node.inputs[0]).axis("head_dim").size);
      total.by_width.emplace_back(width, seconds / operations);
    }
  }

  void set_rate(const std::string& op, DType dtype, const Measured& total) {
    double rate = total.operations / total.seconds;
    KernelRate& rates = hardware_.kernels[op];
    if (!total.by_width.empty()) {
      const auto [at_infinity, start] = attention_line(total.by_width);
      rate = 1.0 / at_infinity;
      rates.start = std::max(rates.start.value_or(0.0), start);
    }
    (dtype == DType::kBF16 ? rates.bf16 : rates.f32) = rate;
    report("{:<44} {:>9.2f} G operations/s", fmt::format("{} of {}", op, dtype_name(dtype)),
           rate / kGiga);
  }

  // Seconds of a FLOP as a + b / head_dim, by least squares: a, and b / a.
  static std::pair<double, double> attention_line(
      const std::vector<std::pair<double, double>>& points) {
    double n = 0.0, x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
    for (const auto& [width, seconds] : points) {
      n += 1.0, x += 1.0 / width, y += seconds;
      xx += 1.0 / (width * width), xy += seconds / width;
    }
    const double slope = std::max(0.0, (n * xy - x * y) / std::max(n * xx - x * x, 1e-30));
    const double at_infinity = std::max((y - slope * x) / n, 0.1 * y / n);
    return {at_infinity, std::clamp(slope / at_infinity, 1e-3, 1e6)};
  }

  void measure_links() {
    const int64_t devices = std::max<int64_t>(2, options_.devices);
    hardware_.link = measured_link(devices, is_quick_ ? int64_t{1} << 16 : int64_t{1} << 22,
                                   is_quick_ ? kQuickSeconds : 4.0 * kKernelSeconds);
    hardware_.network = hardware_.link;
    hardware_.efficiency.links = 1.0;
    report("{:<44} {:>9.2f} us, {:.2f} GB/s a device",
           fmt::format("collectives of {} devices of this process", devices),
           hardware_.link.latency / kMicro, hardware_.link.bandwidth / kGiga);
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
