// SPDX-License-Identifier: Apache-2.0
#include "tests/support/build_times.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

constexpr double kLeastSeconds = 3.0;  // Shorter steps are too noisy to compare.
constexpr double kLeastExcess = 5.0;   // In the table's seconds.
constexpr double kGrown = 2.0;
constexpr double kHit = 0.1;         // A step below this fraction was a compiler cache hit.
constexpr double kSameTime = 120.0;  // Seconds during which the load is assumed constant.
constexpr size_t kLeastNeighbours = 8;
constexpr double kBusy = 1.4;  // An otherwise idle machine stays below this spread.

struct Compared {
  const CompileStep* step = nullptr;
  double expected = 0;  // On the table's machine.
  double ratio = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The ratio between the 90th and the 10th percentile.
double spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t tenth = values.size() / 10;
  return values[values.size() - 1 - tenth] / values[tenth];
}

std::vector<Compared> in_both(const std::vector<CompileStep>& steps,
                              const std::map<std::string, CompileBudget>& budgets) {
  std::vector<Compared> both;
  for (const CompileStep& step : steps) {
    const auto budget = budgets.find(step.object);
    if (budget == budgets.end() || budget->second.seconds < kLeastSeconds) continue;
    if (step.lines == 0 || budget->second.lines == 0) continue;
    const double growth =
        static_cast<double>(step.lines) / static_cast<double>(budget->second.lines);
    const double expected = budget->second.seconds * std::max(1.0, growth);
    both.push_back({&step, expected, step.seconds / expected});
  }
  return both;
}

// The usual ratio of the other files that were compiled at about the same time; 0 if they are too
// few.
double usual_ratio(const Compared& one, const std::vector<Compared>& all) {
  std::vector<double> ratios;
  for (const Compared& other : all) {
    const double apart = std::abs(other.step->began_at - one.step->began_at);
    if (other.step != one.step && apart < kSameTime + one.step->seconds)
      ratios.push_back(other.ratio);
  }
  return ratios.size() < kLeastNeighbours ? 0.0 : median(ratios);
}

}  // namespace

std::vector<CompileStep> compile_steps(std::string_view ninja_log) {
  constexpr std::string_view kFolder = "CMakeFiles/";
  std::map<std::string, CompileStep> last;
  std::istringstream lines{std::string(ninja_log)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    double begin = 0, end = 0, nanoseconds = 0;
    std::string output;
    if (!(fields >> begin >> end >> nanoseconds >> output)) continue;
    if (!output.starts_with(kFolder) || !(output.ends_with(".o") || output.ends_with(".gch")))
      continue;
    output.erase(0, kFolder.size());
    last[output] = {output, (end - begin) / 1e3, nanoseconds / 1e9, 0};
  }
  std::vector<CompileStep> steps;
  for (auto& [output, step] : last) steps.push_back(std::move(step));
  std::stable_sort(steps.begin(), steps.end(), [](const CompileStep& a, const CompileStep& b) {
    return a.seconds > b.seconds;
  });
  return steps;
}

std::map<std::string, CompileBudget> read_budgets(std::string_view text) {
  std::map<std::string, CompileBudget> budgets;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    CompileBudget budget;
    std::string object;
    if (fields >> budget.seconds >> budget.lines >> object) budgets[object] = budget;
  }
  return budgets;
}

std::string budget_text(const std::vector<CompileStep>& steps) {
  std::string text =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Seconds, lines of source and object of each file that takes long to compile; what counts\n"
      "# is their ratio. Made by: TESSERA_UPDATE_COMPILE_SECONDS=1 build/release/bin/test_whole\n"
      "# \"no file takes twice as long*\", after a build without a compiler cache.\n";
  for (const CompileStep& step : steps) {
    if (step.seconds >= kLeastSeconds / 2 && step.lines > 0)
      text += fmt::format("{:.1f} {} {}\n", step.seconds, step.lines, step.object);
  }
  return text;
}

BudgetReport compare_with_budgets(const std::vector<CompileStep>& steps,
                                  const std::map<std::string, CompileBudget>& budgets) {
  BudgetReport report;
  std::vector<Compared> both = in_both(steps, budgets);
  if (both.empty()) {
    report.skipped = "no file of this build is in the table";
    return report;
  }
  const size_t listed = both.size();
  std::erase_if(both, [](const Compared& one) { return one.ratio < kHit; });
  if (2 * both.size() < listed) {
    report.skipped =
        fmt::format("{} of {} files came out of a compiler cache", listed - both.size(), listed);
    return report;
  }
  std::vector<double> scattered;
  for (const Compared& one : both) {
    const double usual = usual_ratio(one, both);
    if (usual == 0.0) continue;
    ++report.compared;
    scattered.push_back(one.ratio / usual);
    const double seconds = one.step->seconds / usual;  // On the table's machine.
    if (seconds < kGrown * one.expected || seconds < one.expected + kLeastExcess) continue;
    report.grown.push_back(
        fmt::format("{} took {:.1f} s, expected {:.1f} s by what others took at the time",
                    one.step->object, one.step->seconds, one.expected * usual));
  }
  if (report.compared == 0) {
    report.skipped = "too few files were compiled at one time";
  } else if (const double scatter = spread(scattered); scatter > kBusy) {
    report.grown.clear();
    report.skipped = fmt::format(
        "the machine did other work meanwhile: times of alike files differ by a factor of {:.1f}",
        scatter);
  }
  return report;
}

}  // namespace tessera
