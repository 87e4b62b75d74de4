// SPDX-License-Identifier: Apache-2.0
// Calibration of this machine, with small sizes: what it writes can be planned with.
#include "tasks/planner/calibrate/calibrate.h"

#include <filesystem>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/io/file.h"
#include "tasks/planner/prices/roofline.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

TEST_CASE("a calibration writes a hardware file that prices kernels of the CPU") {
  const TemporaryDirectory folder;
  std::vector<std::string> lines;
  CalibrateOptions options{.devices = 2,
                           .threads = 2,
                           .size = CalibrationSize::kQuick,
                           .output = folder / "mine.toml",
                           .report = [&](const std::string& line) { lines.push_back(line); }};
  const Hardware measured = calibrate(options);
  for (const std::string& line : lines) REQUIRE(line.size() <= 100);
  REQUIRE(lines.size() > 20);

  const Hardware hardware = find_hardware((folder / "mine.toml").string(), hardware_folder());
  REQUIRE(hardware.kind == HardwareKind::kCpu);
  REQUIRE(hardware.processor->devices == 2);
  REQUIRE(hardware.processor->threads == 1);
  REQUIRE(hardware.products->f32->size() == calibration_products(options.size).size());
  REQUIRE(hardware.products->bf16->size() == hardware.products->f32->size());
  for (const char* op : {"attention", "attention_grad", "adam_update", "cross_entropy", "fused",
                         "rms_norm", "layer_norm_grad", "reduce_sum", "softmax"}) {
    CAPTURE(op);
    REQUIRE(hardware.kernels.contains(op));
  }
  REQUIRE(hardware.kernels.at("attention").start.has_value());
  REQUIRE_FALSE(hardware.kernels.contains("einsum"));  // Products have a curve.
  // A product of a measured shape costs what was measured.
  const ProductPoint& point = hardware.products->f32->front();
  const ProductSize size{point.m, point.n, point.k, 1, DType::kF32, DType::kF32};
  REQUIRE(product_seconds(size, hardware) ==
          Approx(size.flops() / (point.share * hardware.peak_flops.f32)));
}

TEST_CASE("a calibration refuses a file that exists or cannot be written") {
  const TemporaryDirectory folder;
  CalibrateOptions options{.output = folder / "mine.toml", .report = [](const std::string&) {}};
  const auto error = [&] { return error_of([&] { check_output(options); }); };
  REQUIRE_NOTHROW(check_output(options));
  write_file_atomically(folder / "mine.toml", "mine");
  REQUIRE_THAT(error(), Catch::Contains("mine.toml exists; give --restart to replace it"));
  // Before anything is measured.
  REQUIRE_THROWS_WITH(calibrate(options), Catch::Contains("exists"));
  REQUIRE(read_file(folder / "mine.toml", 100) == "mine");
  options.replaces = true;
  REQUIRE_NOTHROW(check_output(options));
  options.output = folder.path();
  REQUIRE_THAT(error(), Catch::Contains("is a folder"));
  options.output = folder / "absent" / "mine.toml";
  REQUIRE_THAT(error(), Catch::Contains("absent is not a folder"));
  options.output.clear();
  REQUIRE_THAT(error(), Catch::Contains("--output needs the name of a file"));
}

TEST_CASE("every case of a calibration has operations to count") {
  for (const BenchCase& row : calibration_cases(CalibrationSize::kQuick)) {
    CAPTURE(row.name);
    const Graph graph = calibration_graph(row);
    double operations = 0.0;
    for (const Node& node : graph.nodes()) operations += kernel_operations(graph, node);
    REQUIRE(operations > 0.0);
  }
}

}  // namespace
}  // namespace tessera
