// SPDX-License-Identifier: Apache-2.0
// The compile time budget: no file may take twice as long as in the committed table, relative to
// the other files of the build. The comparison itself is tested first.
#include "tests/support/build_times.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

constexpr int kFiles = 20;

std::string object_name(int i) { return fmt::format("layers.dir/layers/layer_{}.cc.o", i); }

// A build of kFiles files on a machine that is `slowness` times as slow as the table's.
std::vector<CompileStep> steps_of_build(double slowness) {
  std::vector<CompileStep> steps;
  double now = 1e9;
  for (int i = 0; i < kFiles; ++i) {
    steps.push_back({object_name(i), slowness * (4.0 + i % 5), now, 100});
    now += steps.back().seconds / 2;
  }
  return steps;
}

std::map<std::string, CompileBudget> budgets_of_build() {
  return read_budgets(budget_text(steps_of_build(1.0)));
}

TEST_CASE("a file that became twice as slow relative to the rest of its build is reported") {
  std::vector<CompileStep> steps = steps_of_build(3.0);
  REQUIRE(compare_with_budgets(steps, budgets_of_build()).grown.empty());
  steps[4].seconds *= 2.1;
  const BudgetReport report = compare_with_budgets(steps, budgets_of_build());
  REQUIRE(report.skipped.empty());
  REQUIRE(report.compared == kFiles);
  REQUIRE(report.grown.size() == 1);
  REQUIRE(report.grown[0] ==
          "layers.dir/layers/layer_4.cc.o took 50.4 s, expected 24.0 s by what others took at the "
          "time");
}

TEST_CASE("a file may take longer if its source grows or the machine is busy") {
  std::vector<CompileStep> steps = steps_of_build(1.0);
  steps[4].seconds *= 2.1;
  steps[4].lines *= 2;
  REQUIRE(compare_with_budgets(steps, budgets_of_build()).grown.empty());
  // An hour later, the rest is compiled on a busy machine.
  std::vector<CompileStep> later = steps_of_build(4.0);
  for (CompileStep& step : later) step.began_at += 3600.0;
  std::copy(later.begin() + kFiles / 2, later.end(), steps.begin() + kFiles / 2);
  const BudgetReport report = compare_with_budgets(steps, budgets_of_build());
  REQUIRE(report.grown.empty());
  REQUIRE(report.compared == kFiles);
}

TEST_CASE("builds without usable compile times are not compared") {
  std::vector<CompileStep> steps = steps_of_build(1.0);
  for (CompileStep& step : steps) step.seconds = 0.05;
  REQUIRE(compare_with_budgets(steps, budgets_of_build()).skipped ==
          "20 of 20 files came out of a compiler cache");
  REQUIRE(compare_with_budgets(steps, {}).skipped == "no file of this build is in the table");
  const std::vector<CompileStep> one = {{object_name(4), 60.0, 1e9, 100}};
  REQUIRE(compare_with_budgets(one, budgets_of_build()).skipped ==
          "too few files were compiled at one time");
}

TEST_CASE("a build during which the machine did other work is not compared") {
  std::vector<CompileStep> steps = steps_of_build(1.0);
  for (int i = 0; i < kFiles; i += 3) steps[static_cast<size_t>(i)].seconds *= 2.5;
  const BudgetReport report = compare_with_budgets(steps, budgets_of_build());
  REQUIRE(report.grown.empty());
  REQUIRE(report.skipped ==
          "the machine did other work meanwhile: times of alike files differ by a factor of 2.5");
}

TEST_CASE("the last compilation of each object is read from ninja's log") {
  const std::vector<CompileStep> steps = compile_steps(
      "# ninja log v5\n"
      "0\t1500\t5000000000\tCMakeFiles/a.dir/a.cc.o\tf00\n"
      "0\t4000\t6000000000\tCMakeFiles/b.dir/b.cc.o\tf01\n"
      "9\t99\t6000000000\tlib/liba.so\tf02\n"
      "500\t3000\t7000000000\tCMakeFiles/a.dir/a.cc.o\tf00\n");
  REQUIRE(steps.size() == 2);
  REQUIRE(steps[0].object == "b.dir/b.cc.o");
  REQUIRE(steps[1].object == "a.dir/a.cc.o");
  REQUIRE(steps[1].seconds == 2.5);
  REQUIRE(steps[1].began_at == 7.0);
}

int64_t lines_of(const filesystem::path& file) {
  std::ifstream stream(file);
  return std::count(std::istreambuf_iterator<char>(stream), {}, '\n');
}

// The lines of a file, or of all files that a unity file includes.
int64_t source_lines(const std::string& object) {
  const std::string source = object.substr(0, object.size() - std::string(".o").size());
  const filesystem::path root = TESSERA_SOURCE_DIR, below = source.substr(source.find('/') + 1);
  if (!below.string().starts_with("units/")) return lines_of(root / below);
  int64_t lines = 0;
  std::ifstream unity(filesystem::path(TESSERA_BINARY_DIR) / below);
  for (std::string line; std::getline(unity, line);) {
    const size_t begin = line.find('"');
    if (line.starts_with("#include") && begin != std::string::npos)
      lines += lines_of(root / line.substr(begin + 1, line.rfind('"') - begin - 1));
  }
  return lines;
}

TEST_CASE("no file takes twice as long to compile as its budget") {
  const filesystem::path log = filesystem::path(TESSERA_BINARY_DIR) / ".ninja_log";
  const filesystem::path table =
      filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/compile_seconds.txt";
  std::vector<CompileStep> steps = compile_steps(read_file(log));
  for (CompileStep& step : steps) step.lines = source_lines(step.object);
  fmt::print("the slowest files of this build:\n");
  for (size_t i = 0; i < std::min<size_t>(10, steps.size()); ++i)
    fmt::print("{:7.1f} s  {}\n", steps[i].seconds, steps[i].object);
  if (std::getenv("TESSERA_UPDATE_COMPILE_SECONDS") != nullptr) {
    std::ofstream(table) << budget_text(steps);
    return;
  }
  const BudgetReport report = compare_with_budgets(steps, read_budgets(read_file(table)));
  if (!report.skipped.empty()) fmt::print("compile times are not compared: {}\n", report.skipped);
  REQUIRE(report.grown == std::vector<std::string>{});
}

}  // namespace
}  // namespace tessera
