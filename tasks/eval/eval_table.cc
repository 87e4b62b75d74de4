// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/eval_table.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tasks/eval/evaluation.h"

namespace tessera {
namespace {

constexpr std::string_view kEvalPrefix = "eval/";
constexpr std::string_view kTagPrefix = "tag/";
// These columns come first, in this order.
constexpr std::string_view kFirst[] = {"loss",          "log_pplx", "perplexity",
                                       "bits_per_byte", "accuracy", "weight"};

struct EvalLine {
  std::string name;                      // "validation", "validation/books", "tag/code".
  std::map<std::string, double> values;  // By metric.
};

size_t rank(const std::string& metric) {
  return static_cast<size_t>(std::find(std::begin(kFirst), std::end(kFirst), metric) -
                             std::begin(kFirst));
}

// Tags come last; a dataset comes before its sources.
std::vector<EvalLine> lines_of(const std::map<std::string, double>& metrics) {
  std::map<std::pair<bool, std::string>, std::map<std::string, double>> lines;
  for (const auto& [full, value] : metrics) {
    const std::string name = full.substr(full.starts_with(kEvalPrefix) ? kEvalPrefix.size() : 0);
    const size_t slash = name.rfind('/');
    std::string of = slash == std::string::npos ? "" : name.substr(0, slash);
    std::string metric = name.substr(slash + 1);
    if (metric.starts_with(kMacroPrefix)) {
      of += " (macro)";
      metric.erase(0, std::string_view(kMacroPrefix).size());
    }
    lines[{of.starts_with(kTagPrefix), of}][metric] = value;
  }
  std::vector<EvalLine> result;
  for (auto& [key, values] : lines) result.push_back({key.second, std::move(values)});
  return result;
}

std::vector<std::string> columns_of(const std::vector<EvalLine>& lines) {
  std::vector<std::string> columns;
  for (const EvalLine& line : lines)
    for (const auto& [metric, value] : line.values)
      if (std::find(columns.begin(), columns.end(), metric) == columns.end())
        columns.push_back(metric);
  std::stable_sort(columns.begin(), columns.end(), [](const auto& a, const auto& b) {
    return std::make_pair(rank(a), a) < std::make_pair(rank(b), b);
  });
  return columns;
}

std::string cell(const EvalLine& line, const std::string& metric) {
  const auto found = line.values.find(metric);
  if (found == line.values.end()) return "";
  const double value = found->second;
  if (!std::isfinite(value)) return "-";
  if (metric == "weight") return count_text(value);
  return std::abs(value) < 1e5 ? fmt::format("{:.4f}", value) : fmt::format("{:.3g}", value);
}

}  // namespace

std::vector<std::string> eval_table(int64_t step, const std::map<std::string, double>& metrics) {
  if (metrics.empty()) return {};
  const std::vector<EvalLine> lines = lines_of(metrics);
  std::vector<std::vector<std::string>> cells = {{fmt::format("step {}", step)}};
  for (const EvalLine& line : lines) cells.push_back({line.name});
  for (const std::string& metric : columns_of(lines)) {
    cells[0].push_back(metric == "weight" ? "labels" : metric);
    for (size_t i = 0; i < lines.size(); ++i) cells[i + 1].push_back(cell(lines[i], metric));
  }
  std::vector<size_t> widths(cells[0].size(), 0);
  for (const auto& row : cells)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::vector<std::string> text;
  for (const auto& row : cells) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text.push_back(std::move(line));
  }
  return text;
}

void print_evaluation(int64_t step, const EvalReport& report, Console* console) {
  for (const std::string& line : eval_table(step, report.metrics)) console->info(line);
  for (const std::string& remark : report.remarks) console->info("note: " + remark);
}

}  // namespace tessera
