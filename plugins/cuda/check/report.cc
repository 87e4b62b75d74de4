// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/check/report.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plugins/loader.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera::cuda {
namespace {

constexpr const char* kStageTitles[kStages] = {"GPU and launches", "kernels", "compute-sanitizer",
                                               "training", "speed"};

std::vector<std::string> split(const std::string& columns) {
  std::istringstream text(columns);
  std::vector<std::string> names;
  for (std::string name; std::getline(text, name, '|');) names.push_back(name);
  return names;
}

// Writes rows with the same columns as one table.
std::string tables_text(const std::vector<Findings>& items, bool whole) {
  std::vector<Row> rows;
  for (const Findings& item : items)
    if (whole || item.stage == kStages) rows.insert(rows.end(), item.rows.begin(), item.rows.end());
  std::string text;
  for (size_t begin = 0, end; begin < rows.size(); begin = end) {
    std::vector<std::vector<std::string>> table = {split(rows[begin].columns)};
    for (end = begin; end < rows.size() && rows[end].columns == rows[begin].columns; ++end)
      table.push_back(rows[end].cells);
    std::vector<size_t> widths(table[0].size(), 0);
    for (const auto& line : table)
      for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
    for (const auto& line : table) {
      for (size_t i = 0; i < line.size(); ++i)
        text += fmt::format("{:<{}}  ", line[i], i + 1 < line.size() ? widths[i] : 0);
      text.replace(text.find_last_not_of(' ') + 1, std::string::npos, "\n");
    }
    text += "\n";
  }
  return text;
}

std::string stages_text(const Report& report, const std::vector<Item>& items) {
  std::string text;
  for (int64_t stage = 1; stage <= kStages; ++stage) {
    std::map<std::string, int> counts;
    double seconds = 0.0;
    for (const Item& item : items) {
      const Findings* const found = report.find(item.name);
      if (item.stage != stage) continue;
      ++counts[found == nullptr ? "not run" : found->status];
      if (found != nullptr) seconds += found->seconds;
    }
    text += fmt::format("{} {:<18}", stage, kStageTitles[stage - 1]);
    for (const char* const status : {kPassed, kFailed, kNotTested, "not run"})
      text += fmt::format("{:>4} {}, ", counts[status], status);
    text += fmt::format("{:.1f} s\n", seconds);
  }
  return fmt::format("{}nodes by implementation: {}\n\n", text, nodes_text(report.items));
}

std::string failures_text(const std::vector<Findings>& items, bool whole) {
  std::string text;
  for (const Findings& each : items) {
    if (each.status != kFailed) continue;
    text += fmt::format("FAILED {} (stage {})\n", each.name, each.stage);
    const size_t shown = whole ? each.failures.size() : std::min<size_t>(2, each.failures.size());
    for (size_t i = 0; i < shown; ++i) text += fmt::format("  {}\n", each.failures[i]);
    if (shown < each.failures.size())
      text += fmt::format("  and {} more\n", each.failures.size() - shown);
    text += fmt::format("  {}\n\n", fmt::join(each.notes, "\n  "));
  }
  return text;
}

// Lists items that were not tested for the same reason in one line.
std::string not_tested_text(const std::vector<Findings>& items) {
  std::map<std::string, int> reasons;
  for (const Findings& each : items)
    if (each.status == kNotTested)
      ++reasons[fmt::format("stage {}: {}", each.stage, each.failures.at(0))];
  std::string text;
  for (const auto& [reason, count] : reasons)
    text += fmt::format("not tested: {} of {}\n", count, reason);
  return text + "\n";
}

// Leaves only the last part of absolute paths, and no names of this machine and its user.
std::string anonymous(std::string text) {
  text = std::regex_replace(text, std::regex(R"((^|[\s'"(=,:\[])/([^\s/'"(),:;]+/)+)"), "$1");
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  const std::string machine = host;
  const passwd* const user = ::getpwuid(::getuid());
  const char* const variable = std::getenv("USER");
  const auto in_word = [&](size_t at) { return at < text.size() && std::isalnum(text[at]) != 0; };
  for (const auto& [name, instead] : {std::pair<std::string, std::string>{machine, "<host>"},
                                      {machine.substr(0, machine.find('.')), "<host>"},
                                      {user == nullptr ? "" : user->pw_name, "<user>"},
                                      {variable == nullptr ? "" : variable, "<user>"}}) {
    for (size_t at = 0; !name.empty() && (at = text.find(name, at)) != std::string::npos; ++at)
      if (!in_word(at - 1) && !in_word(at + name.size())) text.replace(at, name.size(), instead);
  }
  return text;
}

}  // namespace

std::string nodes_text(const std::vector<Findings>& items) {
  std::map<std::string, int64_t> nodes;
  for (const Findings& each : items)
    for (const auto& [name, number] : each.nodes) nodes[name] += number;
  std::vector<std::string> texts;
  for (const auto& [name, number] : nodes) texts.push_back(fmt::format("{} {}", name, number));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string report_text(const Report& report, const std::vector<Item>& items, bool whole) {
  return stages_text(report, items) + tables_text(report.items, whole) +
         not_tested_text(report.items) + failures_text(report.items, whole);
}

std::string campaign_text(const Report& report, const std::string& text,
                          const CheckOptions& options) {
  std::optional<Hardware> measured;
  for (const Findings& each : report.items) {
    if (!each.name.starts_with(kCampaignPreset) || each.rows.empty()) continue;
    const std::vector<std::string>& cells = each.rows.front().cells;  // The row of the recipe.
    if (!measured) measured = find_hardware(cells.back(), own_plugins("hardware"));
    const Hardware fitted =
        read_hardware(options.place("runs", cells.front()) / kFittedHardwareFile);
    measured->launches.insert(fitted.launches.begin(), fitted.launches.end());
  }
  const std::string about = anonymous(fmt::format(
      "gpu_check --campaign by {}\nFigures are those of the hardware file that the recipes name, "
      "launches were measured.\n\n{}",
      report.about, text));
  if (measured) return hardware_text(*measured, about);
  return std::regex_replace("No recipe was measured.\n" + about, std::regex("(^|\n)"), "$1# ");
}

}  // namespace tessera::cuda
