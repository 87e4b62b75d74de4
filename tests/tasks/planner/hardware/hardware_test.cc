// SPDX-License-Identifier: Apache-2.0
// The hardware files of the tree, and errors for files that are wrong.
#include "tasks/planner/hardware/hardware.h"

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/compile/spmd/lower.h"
#include "core/io/file.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/runtime/executor/launch_trace.h"
#include "tasks/planner/prices/priced_launch.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const std::string kGood = R"(title = "Mine"
kind = "gpu"
launch_overhead = 1e-6
price_per_hour = 2
[peak_flops]
bf16 = 1e14
f32 = 1e13
[memory]
bytes = 16_000_000_000
bandwidth = 1e12
[link]
bandwidth = 1e11
latency = 1e-5
[network]
bandwidth = 1e10
latency = 2e-5
[efficiency]
products = 0.8
copies = 0.9
links = 1.0
[multiprocessors]
count = 100
clock = 1e9
matrix_share = 1.0
shared_memory_bytes = 100_000
[tiles]
start = 400.0
)";

// The good file with its first `from` replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Hardware read(const std::string& text) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "mine.toml", text);
  return read_hardware(folder / "mine.toml");
}

// The error for a file, without the folder: "mine.toml: …".
std::string error_for(const std::string& text) {
  const std::string error = error_of([&] { read(text); });
  REQUIRE(error.find('\n') == std::string::npos);
  const size_t name = error.find("mine.toml");
  REQUIRE(name != std::string::npos);
  return error.substr(name);
}

TEST_CASE("every hardware file of the tree is read, and has the same fields for a kind") {
  const std::vector<std::string> names = hardware_names(hardware_folder());
  REQUIRE(names == std::vector<std::string>{"a100", "b200", "h100", "h200", "rtx4090", "tpu_v4",
                                            "tpu_v5p", "zen3_2c", "zen3_2c_2_devices"});
  for (const std::string& name : names) {
    CAPTURE(name);
    const Hardware hardware = hardware_named(name);
    REQUIRE(hardware.name == name);
    REQUIRE(hardware.tiles.has_value() == (hardware.kind == HardwareKind::kGpu));
    REQUIRE(hardware.price_per_hour.has_value() == (hardware.kind != HardwareKind::kCpu));
    REQUIRE(hardware.products.has_value() == (hardware.kind == HardwareKind::kCpu));
    if (hardware.kind == HardwareKind::kCpu) continue;  // Measured, and without bf16 or a network.
    REQUIRE(hardware.peak_flops.bf16 > hardware.peak_flops.f32);
    REQUIRE(hardware.link.bandwidth > hardware.network.bandwidth);
    REQUIRE(hardware.memory.bandwidth > hardware.link.bandwidth);
  }
}

TEST_CASE("the peaks of devices are those of their datasheets") {
  struct Row {
    const char* name;
    double bf16, f32, bandwidth;  // TFLOP/s and TB/s.
  };
  for (const Row& row : {Row{"a100", 312, 19.5, 2.039}, Row{"h100", 989.4, 66.9, 3.35},
                         Row{"h200", 989.4, 66.9, 4.8}, Row{"b200", 2250, 75, 8.0},
                         Row{"rtx4090", 165.2, 82.6, 1.008}, Row{"tpu_v4", 275, 275.0 / 6, 1.2},
                         Row{"tpu_v5p", 459, 459.0 / 6, 2.765}}) {
    const Hardware hardware = hardware_named(row.name);
    CAPTURE(row.name);
    REQUIRE(hardware.peak_flops(DType::kBF16) == Approx(row.bf16 * 1e12).epsilon(0.01));
    // The clock of the tensor cores' peak is up to 8 % below the highest.
    REQUIRE(hardware.peak_flops(DType::kF32) == Approx(row.f32 * 1e12).epsilon(0.1));
    REQUIRE(hardware.memory.bandwidth == Approx(row.bandwidth * 1e12));
  }
}

TEST_CASE("a name is looked up in the folder, a path is read") {
  REQUIRE_THROWS_WITH(find_hardware("h20", hardware_folder()),
                      "--hardware=h20: unknown hardware; did you mean 'h200'?; expected a100, "
                      "b200, h100, h200, rtx4090, tpu_v4, tpu_v5p, zen3_2c, zen3_2c_2_devices or "
                      "the path of a TOML file");
  const TemporaryDirectory folder;
  for (const std::string name : {"", "..", "../hardware"})
    REQUIRE_THROWS(find_hardware(name, hardware_folder()));
  REQUIRE_THROWS_WITH(
      find_hardware("h200", folder.path()),
      fmt::format("--hardware=h200: {} has no hardware files", folder.path().string()));
  REQUIRE(hardware_names(folder / "absent").empty());

  write_file_atomically(folder / "mine.toml", kGood);
  REQUIRE(find_hardware("mine", folder.path()).name == "mine");
  const std::string path = (folder / "mine.toml").string();
  const Hardware mine = find_hardware(path, hardware_folder());
  REQUIRE(mine.name == path);
  REQUIRE(mine.title == "Mine");
  REQUIRE(mine.price_per_hour == 2.0);
  REQUIRE(mine.multiprocessors->count == 100);
  REQUIRE_THROWS_WITH(find_hardware("absent.toml", hardware_folder()),
                      "--hardware=absent.toml: no such file");
  // A folder is no file.
  REQUIRE_THROWS_WITH(find_hardware(folder.path().string() + "/", hardware_folder()),
                      Catch::Contains(folder.path().string()));
}

TEST_CASE("a hardware file with a missing field is refused") {
  REQUIRE(error_for(with("f32 = 1e13\n", "")) ==
          "mine.toml: missing field: peak_flops.f32; `runexp --mode=plan --help` names files "
          "that have all of them");
  REQUIRE_THAT(error_for(with("kind = \"gpu\"\n", "")), Catch::Contains("missing field: kind;"));
  REQUIRE_THAT(error_for(with("[network]\nbandwidth = 1e10\nlatency = 2e-5\n", "")),
               Catch::Contains("missing fields: network.bandwidth, network.latency;"));
  REQUIRE_THAT(error_for(with("start = 400.0\n", "")),
               Catch::Contains("missing field: tiles.start;"));
  REQUIRE_THAT(error_for("[tiles]\n"), Catch::Contains("efficiency.links, tiles.start;"));
  REQUIRE_THAT(error_for(""), Catch::Contains("missing fields: title, kind, launch_overhead,"));
  REQUIRE_FALSE(read(with("price_per_hour = 2\n", "")).price_per_hour.has_value());
}

TEST_CASE("a hardware file with an unknown field or a wrong type is refused") {
  REQUIRE(error_for(with("price_per_hour", "price_an_hour")) ==
          "mine.toml: no field 'price_an_hour' in a hardware file; did you mean "
          "'price_per_hour'?");
  REQUIRE_THAT(error_for(with("copies =", "copy =")), Catch::Contains("'efficiency.cop"));
  REQUIRE_THAT(error_for(with("[tiles]", "[tiless]")), Catch::Contains("did you mean 'tiles'?"));
  REQUIRE(error_for(with("1e14", "\"fast\"")) ==
          "mine.toml: peak_flops.bf16: got \"fast\", expected a number");
  REQUIRE(error_for(with("16_000_000_000", "16.5")) ==
          "mine.toml: memory.bytes: got 16.5, expected an integer");
  REQUIRE_THAT(error_for(with("\"gpu\"", "\"gpus\"")),
               Catch::Contains("kind: got 'gpus', expected one of gpu, tpu, cpu"));
  REQUIRE_THAT(error_for("memory = 3\n"), Catch::Contains("mine.toml: memory: got 3"));
  REQUIRE_THAT(error_for("title = \n"), Catch::Contains("mine.toml:1: "));
}

TEST_CASE("a hardware file with a number that cannot be is refused") {
  for (const char* number : {"0.0", "-2.5", "-3"})
    REQUIRE_THAT(error_for(with("1e14", number)),
                 Catch::StartsWith(fmt::format("mine.toml: peak_flops.bf16 is {}", number)) &&
                     Catch::Contains(", expected 1000000 to 1e+21 FLOP/s"));
  for (const char* number : {"inf", "nan"})
    REQUIRE(error_for(with("1e14", number)) ==
            fmt::format("mine.toml: peak_flops.bf16 is {}, expected a finite number (at most "
                        "3.4e38)",
                        number));
  const auto refused = [](const std::string& from, const std::string& to) {
    const std::string error = error_for(with(from, to));
    return error.substr(error.find(' ') + 1);
  };
  REQUIRE(refused("1e14", "1e30") == "peak_flops.bf16 is 1e+30, expected 1000000 to 1e+21 FLOP/s");
  REQUIRE(refused("1e-6", "5.0") == "launch_overhead is 5.0, expected 1e-12 to 1 seconds");
  REQUIRE(refused("1e-5", "1e-300") == "link.latency is 1e-300, expected 1e-12 to 1 seconds");
  REQUIRE(refused("bandwidth = 1e12", "bandwidth = 1000") ==
          "memory.bandwidth is 1000.0, expected 1000000 to 1e+18 bytes per second");
  REQUIRE(refused("16_000_000_000", "16") == "memory.bytes is 16, expected 1000000 to 1e+18 bytes");
  REQUIRE(refused("copies = 0.9", "copies = 90") ==
          "efficiency.copies is 90.0, expected 0.001 to 1 of the peak");
  REQUIRE(refused("= 100\n", "= 2_000_000\n") ==
          "multiprocessors.count is 2000000, expected 1 to 1000000");
  REQUIRE(refused("= 2\n", "= 1e12\n") ==
          "price_per_hour is 1000000000000.0, expected 1e-06 to 1000000000");
  REQUIRE(error_for(with("\"gpu\"", "\"tpu\"")) ==
          "mine.toml: multiprocessors: only for kind = \"gpu\"; got kind = \"tpu\"");
  for (const std::string& title :
       std::vector<std::string>{"\"\"", "\"a\\nb\"", "\"" + std::string(61, 'x') + "\""})
    REQUIRE_THAT(error_for(with("\"Mine\"", title)),
                 Catch::Contains("expected one line of 1 to 60 bytes"));
}

// The good file for a processor, with curves, and with its first `from` replaced.
std::string measured_with(const std::string& from = "", const std::string& to = "") {
  std::string text = kGood.substr(0, kGood.find("[multiprocessors]"));
  const auto replace = [&text](const std::string& old, const std::string& by) {
    const size_t at = text.find(old);
    REQUIRE(at != std::string::npos);
    text.replace(at, old.size(), by);
  };
  replace("\"gpu\"", "\"cpu\"");
  replace(
      "bandwidth = 1e12\n",
      "bandwidth = 1e12\ncopies = [{bytes = 1000, bandwidth = 4e12}, {bytes = 9000, bandwidth = "
      "2e12}]\n");
  replace("latency = 1e-5\n", "latency = 1e-5\ntopology = \"ring\"\n");
  text += R"([processor]
devices = 2
threads = 1
[products]
f32 = [{m = 64, n = 64, k = 32, share = 0.5}]
[kernels]
attention = {f32 = 1e9, start = 40.0}
fused = {f32 = 2e9, bf16 = 1e9}
)";
  replace(from, to);
  return text;
}

TEST_CASE("a hardware file may have curves, topologies and rates of kernels") {
  const Hardware hardware = read(measured_with());
  REQUIRE(hardware.memory.copies->size() == 2);
  REQUIRE(hardware.link.topology == LinkTopology::kRing);
  REQUIRE_FALSE(hardware.network.topology.has_value());
  REQUIRE(hardware.processor->devices == 2);
  // A dtype without points or rates has those of the other.
  REQUIRE(hardware.products->points(DType::kBF16)[0].share == 0.5);
  REQUIRE(hardware.kernels.at("attention")(DType::kBF16) == 1e9);
  REQUIRE(hardware.kernels.at("fused")(DType::kBF16) == 1e9);
  REQUIRE(hardware.kernels.at("fused")(DType::kF32) == 2e9);
}

TEST_CASE("mistakes in curves, topologies and rates are refused") {
  const auto refused = [](const std::string& from, const std::string& to) {
    const std::string error = error_for(measured_with(from, to));
    return error.substr(error.find(' ') + 1);
  };
  REQUIRE_THAT(refused("\"ring\"", "\"star\""),
               Catch::Contains("link.topology: got 'star', expected one of ring, tree"));
  REQUIRE_THAT(refused("m = 64, ", ""), Catch::Contains("missing field: products.f32[0].m;"));
  REQUIRE_THAT(refused("m = 64, ", "rows = 64, "),
               Catch::Contains("no field 'products.f32[0].rows'"));
  REQUIRE(refused("share = 0.5", "share = 1.5") ==
          "products.f32[0].share is 1.5, expected 1e-06 to 1 of the peak");
  REQUIRE_THAT(refused("m = 64", "m = -64"),
               Catch::StartsWith("products.f32[0].m is -64, expected"));
  REQUIRE_THAT(refused("m = 64", "m = 6.5"), Catch::Contains("expected an integer"));
  REQUIRE_THAT(refused("f32 = [{m = 64, n = 64, k = 32, share = 0.5}]\n", ""),
               Catch::StartsWith("products: expected points"));
  REQUIRE(refused("bytes = 9000", "bytes = 900") ==
          "memory.copies[1].bytes: got 900, expected more than the 1000 before it");
  REQUIRE_THAT(
      refused("[{bytes = 1000, bandwidth = 4e12}, {bytes = 9000, bandwidth = 2e12}]", "[]"),
      Catch::StartsWith("memory.copies: expected at least one point"));
  REQUIRE(refused("attention =", "atention =") ==
          "kernels.atention: unknown op; did you mean 'attention'?");
  REQUIRE_THAT(refused("{f32 = 1e9, start = 40.0}", "{start = 40.0}"),
               Catch::StartsWith("kernels.attention: expected operations per second"));
  REQUIRE_THAT(refused("f32 = 1e9", "f32 = -1e9"),
               Catch::StartsWith("kernels.attention.f32 is -1"));
  REQUIRE(refused("\"cpu\"", "\"gpu\"") ==
          "processor: only for kind = \"cpu\"; got kind = \"gpu\"");
  REQUIRE_THAT(error_for(kGood + "[attention]\nforward = \"ours\"\n"),
               Catch::Contains("attention.forward: got 'ours', expected one of own, cudnn, "
                               "published"));
  REQUIRE_THAT(error_for(kGood + "[attention]\nforward = \"own\"\n"),
               Catch::Contains("missing field: attention.gradient;"));
  REQUIRE(error_for(measured_with() + "[attention]\nforward = \"own\"\ngradient = \"own\"\n") ==
          "mine.toml: attention: only for kind = \"gpu\"; got kind = \"cpu\"");
  std::string without = kGood;
  without.erase(without.find("[multiprocessors]"),
                without.find("[tiles]") - without.find("[multiprocessors]"));
  REQUIRE(error_for(without) ==
          "mine.toml: tiles: expected [multiprocessors], too: count, clock, matrix_share and "
          "shared_memory_bytes");
  REQUIRE(
      error_for(kGood + "[products]\nf32 = [{m = 1, n = 1, k = 1, share = 0.5}]\n") ==
      "mine.toml: tiles and products both say how fast products of a shape are: expected one of "
      "them");
}

TEST_CASE("the text of a hardware file is read back") {
  const TemporaryDirectory folder;
  const auto read_back = [&](const Hardware& hardware) {
    write_file_atomically(folder / "copy.toml", hardware_text(hardware, "One line.\nAnother."));
    return read_hardware(folder / "copy.toml");
  };
  for (const std::string& name : hardware_names(hardware_folder())) {
    CAPTURE(name);
    const Hardware hardware = hardware_named(name);
    const Hardware copy = read_back(hardware);
    REQUIRE(copy.title == hardware.title);
    REQUIRE(copy.kind == hardware.kind);
    REQUIRE(copy.memory.bytes == hardware.memory.bytes);
    REQUIRE(copy.network.latency == Approx(hardware.network.latency).epsilon(1e-3));
    REQUIRE(copy.host.has_value() == hardware.host.has_value());
    REQUIRE(copy.tiles.has_value() == hardware.tiles.has_value());
    REQUIRE(copy.peak_flops.elementwise.has_value() == hardware.peak_flops.elementwise.has_value());
    REQUIRE(copy.attention.has_value() == hardware.attention.has_value());
    REQUIRE(copy.kernels.size() == hardware.kernels.size());
    const ProductSize size{300, 400, 500, 1, DType::kBF16, DType::kBF16};
    REQUIRE(product_seconds(size, copy) == Approx(product_seconds(size, hardware)).epsilon(0.01));
  }
  Hardware tree = hardware_named("h200");
  tree.link.topology = LinkTopology::kTree;
  tree.price_per_hour = 2.5;
  REQUIRE(read_back(tree).link.topology == LinkTopology::kTree);
  REQUIRE(read_back(tree).price_per_hour == 2.5);
  tree.launches = {{"einsum (f32[\"x=2\"]) \\ -> (f32[\"x=2\"])", 1.25e-4}};
  REQUIRE(read_back(tree).launches == tree.launches);
  // The share of a machine that does other work meanwhile is not rounded to 0.
  tree.tiles.reset();
  tree.products = ProductCurve{.f32 = std::vector<ProductPoint>{{64, 64, 64, 1.23e-4}}};
  REQUIRE(read_back(tree).products->f32->at(0).share == Approx(1.23e-4));
}

// A product, exp of it, and exp of a larger array.
Graph three_launches() {
  Trial trial(Mesh(), {"f32[\"row=4 inner=8\"]", "f32[\"inner=8 column=2\"]", "f32[\"x=32\"]"});
  output("y", exp(einsum(trial.inputs()[0], trial.inputs()[1], over("inner"))));
  output("z", exp(trial.inputs()[2]));
  return lower(trial.graph(), Mesh());
}

TEST_CASE("a launch of a measured type takes what was measured") {
  const Graph graph = three_launches();
  const Mesh mesh;
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes()) nodes.push_back(&node);
  REQUIRE(nodes.size() == 3);
  REQUIRE(
      launch_type(graph, *nodes[0]) ==
      "einsum (f32[\"row=4 inner=8\"], f32[\"inner=8 column=2\"]) -> (f32[\"row=4 column=2\"])");
  Hardware hardware = hardware_named("h200");
  const double price = launch_cost(graph, *nodes[2], mesh, hardware).seconds;
  hardware.launches = {{launch_type(graph, *nodes[0]), 3e-4},
                       {"all_gather over data (2 devices)", 1.0}};
  const LaunchSeconds seconds = schedule_seconds(hardware, mesh);
  REQUIRE(seconds(graph, *nodes[0]) == 3e-4);
  REQUIRE(seconds(graph, *nodes[2]) == price);  // Another type: its price.
}

TEST_CASE("costs without collectives do not schedule collectives") {
  REQUIRE_FALSE(schedule_seconds(std::nullopt, Mesh()));
  Hardware hardware = hardware_named("h200");
  REQUIRE_FALSE(schedule_seconds(hardware, Mesh()));
  hardware.launches = {{"exp (f32[\"over=1\"]) -> (f32[\"over=1\"])", 1e-4}};
  REQUIRE_FALSE(schedule_seconds(hardware, Mesh()));
  hardware.launches = {{"all_gather over data (2 devices) (f32[\"x=1\"]) -> (f32[\"x=2\"])", 1e-4}};
  REQUIRE(schedule_seconds(hardware, Mesh()));
}

TEST_CASE("what is not a file of launch costs is an error of one line with its place") {
  REQUIRE(error_for(kGood + "[launches]\n\"exp (f32)\" = 0.0\n") ==
          "mine.toml: launches.\"exp (f32)\" is 0.0, expected 1e-12 to 1000000 seconds");
  REQUIRE_THAT(error_for(kGood + "[launches]\nexp = \"1\"\n"),
               Catch::Contains("launches.exp: got"));
  REQUIRE_THAT(error_for(kGood + "[launches]\nexp = 1e-3\nexp = 1e-3\n"),
               Catch::Contains("mine.toml:"));
  const TemporaryDirectory folder;
  ProcessGroup alone;
  const auto problem = [&] { return error_of([&] { shared_launch_costs(folder.path(), alone); }); };
  REQUIRE_FALSE(shared_launch_costs("", alone));
  REQUIRE_THAT(problem(),
               Catch::Contains("hardware.toml is not a file of measured launches; runexp "
                               "--mode=calibrate --trace=RUN"));
  write_file_atomically(folder / kFittedHardwareFile, kGood);
  REQUIRE_THAT(problem(), Catch::Contains("hardware.toml has no [launches]"));
  write_file_atomically(folder / kFittedHardwareFile, kGood + "[launches]\nexp = 1e-3\n");
  REQUIRE(shared_launch_costs(folder.path(), alone)->launches.at("exp") == 1e-3);
}

}  // namespace
}  // namespace tessera
