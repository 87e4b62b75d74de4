// SPDX-License-Identifier: Apache-2.0
// Kernels that nvcc compiled (test_kernels.cu), correct and with planted faults.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/virtual_gpu/device_state.h"
#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/testing.h"

CATCH_TRANSLATE_EXCEPTION(const tessera::virtual_gpu::Fault& fault) { return fault.text; }

namespace tessera::virtual_gpu {
namespace {

const std::string kSource = TESSERA_SOURCE_DIR "/tests/virtual_gpu/test_kernels.cu";

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  return text.str();
}

const std::string& test_kernels() {
  static const std::string image =
      file_text(TESSERA_BINARY_DIR "/generated/virtual_gpu/test_kernels.fatbin");
  static const std::string ptx(ptx_of(image.data(), 90));
  return ptx;
}

// Returns the line with the comment "fault: name", in the form "test_kernels.cu:12".
std::string place(const std::string& name) {
  std::istringstream lines(file_text(kSource));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (line.ends_with("// fault: " + name)) return fmt::format("test_kernels.cu:{}", number);
  FAIL("no line for fault " << name);
  return {};
}

// Checks that the fault names the kernel, the line and the error.
void check_fault(const std::string& fault, const std::string& kernel, const std::string& name,
                 const std::string& what) {
  INFO(fault);
  REQUIRE(fault.find("kernel " + kernel + ",") != fault.npos);
  REQUIRE(fault.find(place(name)) != fault.npos);
  REQUIRE(fault.find(what) != fault.npos);
  REQUIRE(fault.find("block (") != fault.npos);
}

struct Product {
  int rows, columns, depth;
  std::vector<uint16_t> a, b;
  std::vector<float> expected;
};

Product random_product(int rows, int columns, int depth) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto matrix = [&](int n) {
    std::vector<uint16_t> values(static_cast<size_t>(n) * depth);
    for (auto& value : values) value = bf16_of(normal(random));
    return values;
  };
  Product p{rows, columns, depth, matrix(rows), matrix(columns), {}};
  const auto value = [](uint16_t bits) { return double{float_of(uint64_t{bits} << 16)}; };
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      double sum = 0;
      for (int k = 0; k < depth; ++k) sum += value(p.a[r * depth + k]) * value(p.b[c * depth + k]);
      p.expected.push_back(static_cast<float>(sum));
    }
  }
  return p;
}

struct ProductResult {
  std::string fault;
  double worst = 0;
};

ProductResult run_product(const std::string& kernel, const Product& p, uint64_t seed) {
  TestDevice device(test_kernels());
  device.options.seed = seed;
  const uint64_t c = device.make<float>(p.expected.size());
  const Grid grid{{static_cast<uint32_t>(p.columns) / 32, static_cast<uint32_t>(p.rows) / 32, 1},
                  {128, 1, 1}};
  ProductResult result;
  result.fault =
      device.fault(kernel, grid, device.put(p.a), device.put(p.b), c, p.columns, p.depth);
  if (!result.fault.empty()) return result;
  const auto values = device.get<float>(c, p.expected.size());
  for (size_t k = 0; k < values.size(); ++k)
    result.worst = std::max(result.worst, std::fabs(double{values[k]} - p.expected[k]));
  return result;
}

}  // namespace

TEST_CASE("nvcc kernels: sums of rows in any order of blocks and warps") {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    TestDevice device(test_kernels());
    device.options.seed = seed;
    std::vector<float> x(5 * 300);
    for (size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 37) - 11;
    const uint64_t y = device.make<float>(5);
    const uint64_t input = device.put(x);
    const AccessLog log = device.run("row_sum", grid_of(5, 128), input, y, 300);
    const auto sums = device.get<float>(y, 5);
    for (size_t r = 0; r < 5; ++r) {
      float expected = 0;
      for (size_t c = 0; c < 300; ++c) expected += x[300 * r + c];
      REQUIRE(sums[r] == expected);
    }
    REQUIRE(log.reads.size() == 1);
    REQUIRE(log.reads[0].begin == input);
    REQUIRE(log.reads[0].end == input + 4 * x.size());
    REQUIRE(log.writes.size() == 1);
    REQUIRE(log.writes[0].begin == y);
    REQUIRE(log.writes[0].end == y + 20);
  }
}

TEST_CASE("nvcc kernels: matrix product with mma, ldmatrix and cp.async") {
  const Product p = random_product(64, 96, 160);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const ProductResult result = run_product("matmul", p, seed);
    REQUIRE(result.fault == "");
    REQUIRE(result.worst < 1e-4);
  }
}

TEST_CASE("Planted faults: matrix product") {
  const Product p = random_product(32, 32, 160);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    check_fault(run_product("matmul_late_wait", p, seed).fault, "matmul_late_wait", "wait",
                "asynchronous copy");
    const std::string overwrite = run_product("matmul_no_last_barrier", p, seed).fault;
    INFO(overwrite);
    REQUIRE(overwrite.find("race: store is unordered with a load") != overwrite.npos);
    REQUIRE(overwrite.find("cp.async.cg.shared.global") != overwrite.npos);
    const ProductResult swapped = run_product("matmul_swapped", p, seed);
    REQUIRE(swapped.fault == "");
    REQUIRE(swapped.worst > 1);
  }
}

TEST_CASE("nvcc kernels: atomics, votes and control flow") {
  TestDevice device(test_kernels());
  device.options.seed = 5;
  std::vector<uint8_t> bytes(1000);
  std::vector<uint32_t> expected(256);
  for (size_t k = 0; k < bytes.size(); ++k)
    ++expected[bytes[k] = static_cast<uint8_t>(k * k % 251 % 17 * 15)];
  const uint64_t counts = device.put(std::vector<uint32_t>(256));
  device.run("histogram", grid_of(3, 96), device.put(bytes), counts, 1000);
  REQUIRE(device.get<uint32_t>(counts, 256) == expected);

  std::vector<int> x(100);
  for (int k = 0; k < 100; ++k) x[k] = k * 7 % 50;
  const uint64_t y = device.make<int>(100);
  device.run("control", grid_of(2, 64), device.put(x), y, 100);
  const auto results = device.get<int>(y, 100);
  const int factors[] = {3, 1, 4, 1, 5, 9, 2, 6};
  for (int k = 0; k < 100; ++k) {
    int value = x[k] * (x[k] % 16 + 1) + factors[x[k] % 8] + 7, steps = 0;
    const int cases[] = {value + 100, value * 3,  value ^ 0x55, value - 41,
                         ~value,      value << 2, -value};
    for (int64_t n = x[k] + 1; n != 1; ++steps) n = n % 2 ? 3 * n + 1 : n / 2;
    REQUIRE(results[k] == cases[x[k] % 7] + steps);
  }
}

TEST_CASE("nvcc kernels: votes") {
  TestDevice device(test_kernels());
  std::vector<int> x(96);
  for (int k = 0; k < 96; ++k) x[k] = k % 5 - 2;
  const uint64_t y = device.make<int>(6 * 96);
  device.run("votes", grid_of(1, 96), device.put(x), y);
  const auto results = device.get<int>(y, 6 * 96);
  const auto count = static_cast<int>(std::ranges::count_if(x, [](int v) { return v > 0; }));
  for (int t = 0; t < 96; ++t) {
    uint32_t ballot = 0, same = 0;
    int sum = 0;
    for (int l = 0; l < 32; ++l) {
      const int other = x[t / 32 * 32 + l];
      ballot |= static_cast<uint32_t>(other > 0) << l;
      same |= static_cast<uint32_t>(other == x[t]) << l;
      sum += other;
    }
    const std::vector<int> expected = {
        count, 0, 1, static_cast<int>(ballot), static_cast<int>(same), sum};
    REQUIRE(std::vector<int>(results.begin() + 6 * t, results.begin() + 6 * t + 6) == expected);
  }
}

TEST_CASE("nvcc kernels: the mathematics of libdevice") {
  TestDevice device(test_kernels());
  std::vector<float> x;
  for (int k = 0; k < 200; ++k)
    x.push_back(std::ldexp(static_cast<float>(k - 100) + 0.37f, k % 9 - 6));
  x.insert(x.end(), {1e5f, -3e7f, 1e-30f});  // Large angles.
  const auto n = static_cast<int>(x.size());
  const uint64_t y = device.make<float>(8 * x.size());
  device.run("transcendental", grid_of(3, 96), device.put(x), y, n);
  const auto results = device.get<float>(y, 8 * x.size());
  for (size_t k = 0; k < x.size(); ++k) {
    const double v = x[k], a = std::fabs(v);
    const double expected[] = {std::exp(v), std::log(a), std::tanh(v),      std::erf(v),
                               std::sin(v), std::cos(v), std::pow(a, 1.7f), std::log1p(a)};
    for (size_t f = 0; f < 8; ++f) {
      INFO("function " << f << " of " << v);
      const auto wanted = static_cast<float>(expected[f]);
      if (std::isinf(wanted)) REQUIRE(results[8 * k + f] == wanted);
      if (!std::isinf(wanted))
        REQUIRE(results[8 * k + f] == Approx(wanted).epsilon(1e-5).margin(1e-7));
    }
  }
}

TEST_CASE("Planted faults: barriers and races") {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    TestDevice device(test_kernels());
    device.options.seed = seed;
    const uint64_t y = device.make<float>(128);
    check_fault(device.fault("row_sum_no_barrier", grid_of(1, 128),
                             device.put(std::vector<float>(128)), y, 128),
                "row_sum_no_barrier", "no_barrier", "shared ");
    check_fault(device.fault("neighbour", grid_of(1, 64), y), "neighbour", "overwrite",
                "race: store is unordered with a load by thread");
    check_fault(device.fault("block_race", grid_of(3, 32), y), "block_race", "block_race",
                "by another block");
    check_fault(device.fault("thread_race", grid_of(1, 64), y), "thread_race", "thread_race",
                "race: store is unordered with a store");
    check_fault(device.fault("divergent_barrier", grid_of(1, 64), y), "divergent_barrier",
                "divergent_barrier", "divergent barrier");
    check_fault(device.fault("missing_warp", grid_of(1, 96), y), "missing_warp", "missing_warp",
                "divergent barrier: warps that have ended do not reach it: 1 2");
    check_fault(device.fault("missing_lanes", grid_of(1, 32), y), "missing_lanes", "missing_lanes",
                "only lanes 0x0000007f");
    REQUIRE(device.fault("block_race", grid_of(1, 32), y) == "");
  }
}

TEST_CASE("Blocks are ordered by fences and atomics, and only by both") {
  for (const uint64_t resident : {1, 3, 8})
    for (const uint64_t seed : {0, 1, 2, 3}) {
      CAPTURE(resident, seed);
      TestDevice device(test_kernels());
      device.options.seed = seed;
      device.options.resident_blocks = resident;
      const auto fault = [&](const char* kernel) {
        const uint64_t total = device.put(std::vector<float>(1));
        const std::string text = device.fault(kernel, grid_of(5, 64), device.make<float>(5),
                                              device.put(std::vector<uint32_t>(1)), total);
        if (text.empty()) REQUIRE(device.get<float>(total, 1)[0] == 15);
        return text;
      };
      REQUIRE(fault("last_block") == "");
      for (const char* const kernel : {"last_block_no_release", "last_block_no_acquire"})
        check_fault(fault(kernel), kernel, "add_parts",
                    "load is unordered with a store by another block");
    }
}

TEST_CASE("A block may wait for one that runs at the same time") {
  TestDevice device(test_kernels());
  device.options.max_instructions = 100000;
  for (const uint64_t resident : {1, 4}) {
    device.options.resident_blocks = resident;
    const uint64_t values = device.make<int>(4);
    const std::string fault =
        device.fault("wait_for_next", grid_of(4, 1), device.put(std::vector<int>(4)), values);
    INFO(fault);
    REQUIRE(fault.empty() == (resident == 4));
    if (fault.empty()) REQUIRE(device.get<int>(values, 4) == std::vector{4, 3, 2, 1});
  }
}

TEST_CASE("Planted faults: memory") {
  TestDevice device(test_kernels());
  const auto n = [](size_t count) { return std::vector<float>(count); };
  const uint64_t x = device.put(n(64)), y = device.make<float>(64), small = device.make<float>(63);
  check_fault(device.fault("copy_floats", grid_of(1, 64), x, small, 64), "copy_floats", "copy",
              "out of bounds: they end 4 bytes after the allocation of 252 bytes");
  check_fault(device.fault("copy_floats", grid_of(1, 64), small, y, 64), "copy_floats", "copy",
              "out of bounds");
  check_fault(device.fault("copy_floats", grid_of(1, 63), device.make<float>(64), y, 64),
              "copy_floats", "copy", "was never written");
  const uint64_t freed = device.put(n(64));
  device.memory.release(freed);
  check_fault(device.fault("copy_floats", grid_of(1, 64), freed, y, 64), "copy_floats", "copy",
              "used after free");
  check_fault(device.fault("copy_floats", grid_of(1, 64), uint64_t{0}, y, 64), "copy_floats",
              "copy", "never allocated");
  check_fault(device.fault("misaligned", grid_of(1, 32), x, y), "misaligned", "misaligned",
              "misaligned access of 16 bytes");
  check_fault(device.fault("uninitialised_shared", grid_of(1, 64), y), "uninitialised_shared",
              "uninitialised_shared", "was never written");
  REQUIRE(device.fault("beyond_shared", grid_of(1, 64, 256), y, 0) == "");
  check_fault(device.fault("beyond_shared", grid_of(1, 64, 256), y, 1), "beyond_shared",
              "beyond_shared", "out of bounds");
  check_fault(device.fault("asserting", grid_of(1, 32), 3), "asserting", "assert", "trap");
  REQUIRE(device.fault("asserting", grid_of(1, 32), 4) == "");
  check_fault(device.fault("failing", grid_of(1, 32), 3), "failing", "trap", "trap");
  REQUIRE(device.fault("failing", grid_of(1, 32), 4) == "");
  device.options.max_instructions = 100000;
  check_fault(device.fault("endless", grid_of(1, 32), device.put(std::vector<int>(1))), "endless",
              "endless", "no end after 100000 instructions");
}

TEST_CASE("Launches and frees that are wrong are named") {
  TestDevice device(test_kernels());
  const uint64_t y = device.make<float>(64);
  REQUIRE(device.fault("block_race", grid_of(1, 1025), y) ==
          "launch of kernel block_race: 1025 threads in a block; 1 to 1024 are possible");
  REQUIRE(
      device.fault("block_race", grid_of(1, 32), y, 1).find("bytes of parameters; it takes 8") !=
      std::string::npos);
  device.memory.release(y);
  REQUIRE(device.memory.used(0) == 0);
  REQUIRE_THROWS_AS(device.memory.release(y), Fault);
}

}  // namespace tessera::virtual_gpu
