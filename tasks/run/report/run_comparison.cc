// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "core/io/json.h"
#include "tasks/run/log/console.h"
#include "tasks/run/report/report.h"
#include "tasks/run/report/run_report.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kColumns = 100;

// Values by path, as text in TOML syntax. Inherited values are left out.
using Settings = std::map<std::string, std::string>;

void add_settings(const Tree& tree, const std::string& path, Settings* settings) {
  if (tree.is_table() && !tree.items.empty()) {
    for (size_t i = 0; i < tree.items.size(); ++i)
      add_settings(tree.items[i], tree.item_path(path, i), settings);
  } else {
    (*settings)[path] = tree.value_text();
  }
}

// Returns no settings for a damaged file, which the run's page notes.
Settings settings_of(const RunReport& run) {
  Settings settings;
  try {
    add_settings(parse_toml(run.files().config, "hparams.toml"), "", &settings);
  } catch (const Error&) {
    settings.clear();
  }
  return settings;
}

template <typename Value>
std::vector<std::pair<std::string, std::vector<std::optional<Value>>>> side_by_side(
    const std::vector<std::map<std::string, Value>>& maps) {
  std::set<std::string> names;
  for (const auto& map : maps)
    for (const auto& [name, value] : map) names.insert(name);
  std::vector<std::pair<std::string, std::vector<std::optional<Value>>>> rows;
  for (const std::string& name : names) {
    std::vector<std::optional<Value>> values;
    for (const auto& map : maps) {
      const auto found = map.find(name);
      values.push_back(found == map.end() ? std::nullopt : std::optional(found->second));
    }
    rows.emplace_back(name, std::move(values));
  }
  return rows;
}

void check_different(const std::vector<fs::path>& runs) {
  if (runs.size() < 2)
    fail("--compare needs at least two runs: --compare RUN_A RUN_B; got {}",
         runs.empty() ? "none" : runs[0].string());
  if (runs.size() > kMostCompared)
    fail("--compare: got {} runs, expected at most {}; name those to compare", runs.size(),
         kMostCompared);
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      std::error_code ignored;
      if (fs::equivalent(runs[i], runs[j], ignored))
        fail("--compare: {} and {} are the same run", runs[j].string(), runs[i].string());
    }
}

// Whether the value belongs into a short table.
bool is_final(const std::string& name) {
  static const std::set<std::string> kHidden = {"learning_rate", "input_wait", "expert_load_mean",
                                                "process_memory"};
  return !kHidden.contains(name) && !name.ends_with("/weight") && !name.ends_with("/perplexity");
}

// Whether the metric is a speed. The speed of one step depends on what else the machine does, so
// the median of the second half of the run is shown.
bool is_speed(const std::string& name) {
  return name == "tokens_per_sec" || name == "step_time" || name == "mfu";
}

double usual_value(const Series& series) {
  std::vector<double> means;
  const auto& points = series.points();
  for (size_t i = points.size() / 2; i < points.size(); ++i)
    if (points[i].count > 0) means.push_back(points[i].sum / static_cast<double>(points[i].count));
  if (means.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = means.begin() + std::ssize(means) / 2;
  std::nth_element(means.begin(), middle, means.end());
  return *middle;
}

std::vector<std::map<std::string, double>> finals_of(const std::vector<RunReport>& reports) {
  std::vector<std::map<std::string, double>> all;
  for (const RunReport& report : reports) {
    std::map<std::string, double> finals = {
        {" step", static_cast<double>(report.metrics().step())}};
    for (const auto& [name, value] : report.metrics().last())
      if (is_final(name))
        finals[name] = is_speed(name) ? usual_value(report.metrics().series().at(name)) : value;
    all.push_back(std::move(finals));
  }
  return all;
}

std::string page_of(const RunComparison& comparison, const std::vector<RunReport>& reports) {
  const auto quoted = [](const std::string& text) { return json_quoted(valid_utf8(text)); };
  const auto number = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.8g}", value) : "null";
  };
  const auto json = [&](const auto& rows, const auto& text) {
    return json_list(rows, [&](const auto& row) {
      return fmt::format(
          "[{}, {}]", quoted(row.first),
          json_list(row.second, [&](const auto& value) { return value ? text(*value) : "null"; }));
    });
  };
  std::vector<std::string> runs;
  for (size_t i = 0; i < reports.size(); ++i)
    runs.push_back(reports[i].json(comparison.names[i], RunReport::Extent::kCharts));
  return report_page(fmt::format("{}", fmt::join(comparison.names, ", ")),
                     json_object({{"kind", "comparison"},
                                  {"runs", RawJson{json_list(runs)}},
                                  {"finals", RawJson{json(comparison.finals, number)}},
                                  {"differences", RawJson{json(comparison.differences, quoted)}}}));
}

// At most `width` characters of it: the end, where paths and names differ.
std::string end_of(const std::string& text, size_t width) {
  const std::string clean = printable(text);
  return clean.size() <= width ? clean : "..." + clean.substr(clean.size() - width + 3);
}

// A row for each name, with a column for each run; where that is too wide, a line for each value.
template <typename Rows, typename Text>
std::string table_text(const std::vector<std::string>& runs, const Rows& rows, const Text& text) {
  std::vector<std::vector<std::string>> table(1, {""});
  std::string list;
  for (const std::string& run : runs) table[0].push_back(end_of(run, 20));
  for (const auto& [name, values] : rows) {
    table.push_back({end_of(name, 48)});
    list += end_of(name, kColumns) + '\n';
    for (size_t i = 0; i < runs.size(); ++i) {
      table.back().push_back(text(values[i]));
      list += fmt::format("  {:<24}  {}\n", end_of(runs[i], 24),
                          end_of(table.back().back(), kColumns - 28));
    }
  }
  const std::vector<std::string> lines = table_lines(table);
  return lines.size() > table.size() ? list : fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace

RunComparison compare_runs(const std::vector<fs::path>& runs) {
  std::vector<RunReport> reports;
  std::vector<std::string> paths;
  for (const fs::path& run : runs) {
    require_run(run);
    paths.push_back(valid_utf8(fs::path(run / "").parent_path().lexically_normal().string()));
  }
  check_different(runs);
  for (const fs::path& run : runs) reports.emplace_back(run);
  RunComparison comparison{.names = short_names(paths, '/')};
  comparison.finals = side_by_side(finals_of(reports));
  std::ranges::stable_sort(comparison.finals, [](const auto& a, const auto& b) {
    // Training before evaluation.
    return !a.first.starts_with("eval/") && b.first.starts_with("eval/");
  });
  comparison.finals.front().first = "step";
  std::vector<Settings> settings;
  for (const RunReport& report : reports) settings.push_back(settings_of(report));
  for (auto& row : side_by_side(settings))
    if (std::ranges::any_of(row.second, [&](const auto& value) { return value != row.second[0]; }))
      comparison.differences.push_back(std::move(row));
  comparison.page = page_of(comparison, reports);
  return comparison;
}

std::vector<std::string> short_names(const std::vector<std::string>& paths, char separator) {
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    size_t begin = path.size();
    bool is_unique = false;
    while (!is_unique && begin > 0) {
      const size_t part = path.rfind(separator, begin - 1);
      begin = part == std::string::npos ? 0 : part;
      const std::string_view ending = std::string_view(path).substr(begin);
      is_unique = std::ranges::count_if(paths, [&](const std::string& other) {
                    // With its separator, or the whole path.
                    return other.ends_with(ending) || separator + other == ending;
                  }) == 1;
    }
    names.push_back(path.substr(begin > 0 && path[begin] == separator ? begin + 1 : begin));
  }
  return names;
}

std::string comparison_text(const RunComparison& comparison) {
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.5g}", *value) : "-";
  };
  const auto setting = [](const std::optional<std::string>& value) {
    return value ? printable(*value) : "absent";
  };
  return "Final values\n" + table_text(comparison.names, comparison.finals, number) +
         (comparison.differences.empty()
              ? "\nThe runs have the same configuration.\n"
              : "\nDifferences of configuration\n" +
                    table_text(comparison.names, comparison.differences, setting));
}

}  // namespace tessera
