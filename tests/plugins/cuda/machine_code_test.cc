// SPDX-License-Identifier: Apache-2.0
// Compares the machine code of every kernel with rules and with tests/golden/cuda_kernels.txt. A
// change of a kernel or of nvcc is reviewed as a diff of that table. Registers and instructions
// depend on the version of nvcc: with another version than the table's only the rules are checked.
#include "tests/plugins/cuda/machine_code.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/devices/attention_tiles.h"
#include "plugins/cuda/device/images.h"
#include "tests/plugins/cuda/kernel_launches.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"
#include "tests/support/skip.h"

namespace tessera::cuda {
namespace {

constexpr int kHopper = 90;
constexpr int kReservedShared = 1 << 10;  // Bytes per block; Hopper and newer.

MachineCodes machine_codes() {
  MachineCodes codes;
  for (const Image& image : kernel_images()) add_machine_code(image.fatbin, codes);
  return codes;
}

// Whether one of the name's parts between underscores is `part`.
bool has_part(std::string_view name, std::string_view part) {
  return fmt::format("_{}_", name).find(fmt::format("_{}_", part)) != std::string::npos;
}
bool begins_with_one_of(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

// Whether a kernel is for other alignments or widths and moves fewer bytes at a time.
bool moves_narrow_units(std::string_view name) {
  for (const std::string_view part : {"unaligned", "scattered", "b8", "b16", "b32", "b64"})
    if (has_part(name, part) && !name.starts_with("transpose_vectors")) return true;
  // Kernels for arrays with any strides, or for a few bytes per row or block.
  return begins_with_one_of(
      name, {"pack_", "product_epilogue", "product_fill", "segment_bounds", "norm_column_sums",
             "cached_attention_join", "scatter_add_count", "scatter_add_place", "scatter_along",
             "add_squared_norms", "argsort", "top_k", "cumulative_sum", "grouped_rows",
             "linear_recurrence_gates"});
}
bool loads_128_bits(std::string_view name) {
  return !moves_narrow_units(name) &&
         !begins_with_one_of(name, {"random_uniform"});  // It has no loads.
}
bool stores_128_bits(std::string_view name) {
  // These store one number per row, column or block.
  return !moves_narrow_units(name) &&
         !begins_with_one_of(name, {"attention_delta", "reduce_", "sum_of_squares"}) &&
         (!name.starts_with("cross_entropy") || has_part(name, "grad"));
}
bool uses_tensor_cores(std::string_view name) {
  return (has_part(name, "bf16") || has_part(name, "fp8")) &&
         begins_with_one_of(name, {"product_", "grouped_", "attention_"}) &&
         !name.starts_with("attention_delta");
}

// Returns how many blocks per multiprocessor the registers must allow: for attention, the number in
// its price (core/devices/attention_tiles.h); for other kernels, a quarter of all warps.
int least_resident_blocks(std::string_view name, const MachineCode& code) {
  using attention_tiles::AttentionKernel;
  constexpr std::pair<std::string_view, AttentionKernel> kAttention[] = {
      {"attention_grad_keys_", AttentionKernel::kKeyGradient},
      {"attention_grad_queries_", AttentionKernel::kQueryGradient},
      {"attention_bf16_", AttentionKernel::kForward},
      {"attention_f32_", AttentionKernel::kForward}};
  for (const auto& [prefix, kernel] : kAttention)
    if (name.starts_with(prefix))
      return attention_tiles::blocks_by_registers(
          kernel, has_part(name, "bf16") ? 2 : 4,
          std::stoi(std::string(name.substr(name.rfind('_') + 1))));
  constexpr int kWarps = 16;
  return std::max(1, kWarps * 32 / code.threads);
}

// Returns the rule that machine code breaks, or "".
std::string broken_rule(std::string_view name, const MachineCode& code) {
  if (code.threads == 0) return "has no __launch_bounds__";
  if (code.local > 0 || code.stack_bytes > 0)
    return fmt::format(
        "has {} LDL and STL instructions and {} bytes of stack, expected none: registers are "
        "spilled, "
        "or an array has an index that is not a constant; let a thread hold less, or ask for fewer "
        "blocks in __launch_bounds__",
        code.local, code.stack_bytes);
  if (loads_128_bits(name) && code.wide_loads == 0)
    return fmt::format(
        "has {} loads of global memory but none of 128 bits (LDG.E.128 or LDGSTS.128); load 16 "
        "bytes at a time (Pack in kernels/vector.cuh)",
        code.loads);
  if (stores_128_bits(name) && code.wide_stores == 0)
    return fmt::format(
        "has {} stores to global memory but none of 128 bits (STG.E.128); store 16 bytes at a time "
        "(Pack in kernels/vector.cuh)",
        code.stores);
  if (uses_tensor_cores(name) && code.tensor == 0)
    return "has no HMMA instruction; products of bf16 belong on tensor cores (kernels/mma.cuh)";
  // A capped score takes one reciprocal and two exponentials; results are scaled by 1 / sum. A
  // division of integers takes a reciprocal and a conversion.
  const int reciprocals = code.reciprocals - code.conversions;
  if (name.starts_with("attention_") && reciprocals > code.exponentials / 2 + 8)
    return fmt::format(
        "has {} reciprocals (MUFU.RCP) for {} exponentials, expected at most half as many: "
        "multiply "
        "by the reciprocal of a sum instead of dividing each element",
        reciprocals, code.exponentials);
  const int least = least_resident_blocks(name, code),
            blocks = resident_blocks(code, code.threads, 0);
  if (blocks < least)
    return fmt::format(
        "has {} registers, with which a multiprocessor holds {} blocks of {} threads, expected at "
        "least {}; let a thread hold less",
        code.registers, blocks, code.threads, least);
  return "";
}

std::vector<std::string> broken_rules(const MachineCodes& codes) {
  std::vector<std::string> problems;
  for (const auto& [kernel, by_architecture] : codes) {
    for (const auto& [architecture, code] : by_architecture) {
      const std::string rule = broken_rule(kernel, code);
      if (!rule.empty())
        problems.push_back(fmt::format("{} for sm_{} {}", kernel, architecture, rule));
    }
  }
  return problems;
}

// -- The table ----------------------------------------------------------------------------------

// Returns, by kernel, the largest dynamic shared memory of its launches.
std::map<std::string, int> dynamic_shared(const std::vector<KernelLaunch>& launches) {
  std::map<std::string, int> bytes;
  for (const KernelLaunch& launch : launches)
    bytes[launch.kernel] = std::max(bytes[launch.kernel], launch.dynamic_shared_bytes);
  return bytes;
}

// Returns the occupancy: resident warps of a multiprocessor in percent of the maximum.
int percent_of_warps(const MachineCode& code, int threads, int dynamic_shared_bytes) {
  return resident_blocks(code, threads, dynamic_shared_bytes) * ((threads + 31) / 32) * 100 / 64;
}

constexpr std::string_view kKernelHeading = R"(
# Registers are those of sm_80, sm_90a, sm_100a and sm_120a. All other numbers are of sm_90a: bytes of
# shared memory, resident warps of a multiprocessor in percent of 64 (for blocks of the most threads),
# and instructions in the code.

)";

// Names the columns of kernel_rows().
std::string kernel_columns() {
  return fmt::format(
      "{:34} {:>7} {:>6} {:>7} {:>4} {:>4} {:>4} {:>4} {:>5} {:>5} {:>6} {:>6} {:>6} {:>4} {:>4} "
      "{:>4}\n",
      "kernel", "threads", "static", "dynamic", "80", "90a", "100a", "120a", "warps", "loads",
      "of 128", "stores", "of 128", "HMMA", "RCP", "EX2");
}

std::string kernel_rows(const MachineCodes& codes, const std::vector<KernelLaunch>& launches) {
  std::map<std::string, int> dynamic = dynamic_shared(launches);
  std::string text = kernel_columns();
  for (const auto& [kernel, by_architecture] : codes) {
    const auto registers = [&](int architecture) {
      return by_architecture.at(architecture).registers;
    };
    const MachineCode& code = by_architecture.at(kHopper);
    text += fmt::format(
        "{:34} {:7} {:6} {:7} {:4} {:4} {:4} {:4} {:4}% {:5} {:6} {:6} {:6} {:4} {:4} {:4}\n",
        kernel, code.threads, std::max(0, code.shared_bytes - kReservedShared), dynamic[kernel],
        registers(80), registers(90), registers(100), registers(120),
        percent_of_warps(code, code.threads, dynamic[kernel]), code.loads, code.wide_loads,
        code.stores, code.wide_stores, code.tensor, code.reciprocals, code.exponentials);
  }
  return text;
}

// Returns the lower bound of a launch's time on an H200.
double roofline_us(const KernelLaunch& launch) {
  constexpr double kBytes = 4.8e12, kTensorFlops = 989e12, kF32Flops = 67e12;  // Per second.
  const double flops = uses_tensor_cores(launch.kernel) ? kTensorFlops : kF32Flops;
  return 1e6 * std::max((launch.bytes_read + launch.bytes_written) / kBytes, launch.flops / flops);
}

constexpr std::string_view kLaunchHeading = R"(

# Launches of examples: each byte that a launch reads or writes, once, as counted by the virtual GPU,
# and the least time on an H200 in microseconds (4.8 TB/s; 989 TFLOP/s of bf16, 67 of f32).

)";

// Names the columns of launch_rows().
std::string launch_columns() {
  return fmt::format("{:36} {:>6} x {:<7} {:>5} {:>8} {:>8} {:>6} {:>6}\n", "kernel", "blocks",
                     "threads", "warps", "read", "written", "GFLOP", "H200");
}

std::string launch_rows(const MachineCodes& codes, const std::vector<KernelLaunch>& launches) {
  std::string text = launch_columns(), example;
  for (const KernelLaunch& launch : launches) {
    const auto code = codes.find(launch.kernel);
    if (code == codes.end()) continue;  // A generated program.
    if (launch.example != example) text += fmt::format("\n{}\n", example = launch.example);
    text += fmt::format(
        "  {:34} {:6} x {:<7} {:4}% {:8.0f} {:8.0f} {:6.3f} {:6.2f}\n", launch.kernel,
        launch.blocks, launch.threads,
        percent_of_warps(code->second.at(kHopper), launch.threads, launch.dynamic_shared_bytes),
        launch.bytes_read, launch.bytes_written, launch.flops * 1e-9, roofline_us(launch));
  }
  return text;
}

// Returns the first line of the table.
std::string title() {
  return "# Machine code of the CUDA kernels, by nvcc " +
         compiler_version(kernel_images()[0].fatbin);
}

std::string table(const MachineCodes& codes, const std::vector<KernelLaunch>& launches) {
  return fmt::format(
      "{}\n# Written by tests/plugins/cuda/machine_code_test.cc with TESSERA_UPDATE_GOLDENS=1, see "
      "docs/testing.md\n{}{}{}{}",
      title(), kKernelHeading, kernel_rows(codes, launches), kLaunchHeading,
      launch_rows(codes, launches));
}

std::string first_line(const std::string& golden) {
  std::ifstream file(TESSERA_SOURCE_DIR "/tests/golden/" + golden);
  std::string line;
  std::getline(file, line);
  return line;
}

constexpr const char* kTable = "cuda_kernels.txt";

TEST_CASE("machine code spills no registers, moves 128 bits at a time and uses tensor cores") {
  const MachineCodes codes = machine_codes();
  REQUIRE(codes.size() > 100);
  REQUIRE(fmt::format("{}", fmt::join(broken_rules(codes), "\n")) == "");
}

TEST_CASE("machine code and launches of kernels are those of the committed table") {
  const MachineCodes codes = machine_codes();
  for (const auto& [kernel, by_architecture] : codes) {
    if (by_architecture.size() == 4) continue;
    return skip_test(
        "this build has machine code for other architectures than the table "
        "(TESSERA_CUDA_ARCHITECTURES)");
  }
  const bool update = std::getenv("TESSERA_UPDATE_GOLDENS") != nullptr;
  if (!update && first_line(kTable) != title())
    return skip_test(fmt::format(
        "tests/golden/{} begins with '{}', and this is '{}'; checked were the rules alone", kTable,
        first_line(kTable), title()));
  const std::vector<KernelLaunch> launches = example_launches();
  INFO("columns of kernels:\n" << kernel_columns() << "columns of launches:\n" << launch_columns());
  REQUIRE(golden_difference(kTable, table(codes, launches)) == "");
}

// Returns the output of a command; "" if it fails.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  for (size_t bytes; (bytes = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), bytes);
  return pclose(pipe) == 0 ? text : "";
}

// Counts instructions in the text of a disassembler.
MachineCodes disassembled(const std::string& text, int architecture) {
  constexpr std::string_view kFunction = "Function : ";
  MachineCodes codes;
  MachineCode* code = nullptr;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t function = line.find(kFunction);
    if (function != std::string::npos)
      code = &codes[line.substr(function + kFunction.size())][architecture];
    if (code == nullptr) continue;
    const auto has = [&](std::string_view opcode) {
      return line.find(fmt::format(" {}.", opcode)) != std::string::npos;
    };
    const bool wide = line.find(".128") != std::string::npos;
    if (has("LDG") || has("LDGSTS")) ++code->loads, code->wide_loads += wide;
    if (has("STG")) ++code->stores, code->wide_stores += wide;
    code->local += has("LDL") || has("STL");
    code->tensor += has("HMMA");
    code->exponentials += line.find(" MUFU.EX2 ") != std::string::npos;
    code->reciprocals += line.find(" MUFU.RCP ") != std::string::npos;
  }
  return codes;
}

TEST_CASE("machine code has the instructions that cuobjdump shows") {
  const std::string fatbin = TESSERA_BINARY_DIR "/generated/cuda/product.fatbin";
  const std::string text = output_of("cuobjdump -sass -arch sm_90a " + fatbin + " 2>/dev/null");
  if (text.empty())
    return skip_test(
        "no cuobjdump with nvdisasm on the PATH; they are in the full CUDA toolkit and in "
        "the PyPI packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm");
  const MachineCodes expected = disassembled(text, kHopper), got = machine_codes();
  REQUIRE(expected.size() > 10);
  for (const auto& [kernel, by_architecture] : expected) {
    MachineCode counts = got.at(kernel).at(kHopper);
    INFO(kernel);
    // Counts that the text does not contain.
    counts.registers = counts.shared_bytes = counts.threads = counts.conversions = 0;
    REQUIRE(counts == by_architecture.at(kHopper));
  }
}

}  // namespace
}  // namespace tessera::cuda
