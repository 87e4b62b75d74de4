// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/check/report.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/file.h"

namespace tessera::cuda {
namespace {

template <typename Values, typename Function>
std::string json_list(const Values& values, const Function& text_of) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(text_of(value));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string row_json(const Row& row) {
  JsonLine line;
  for (const auto& [name, cell] : row) {
    if (const double* const number = std::get_if<double>(&cell))
      line.add(name, *number);
    else
      line.add(name, std::get<std::string>(cell));
  }
  return line.text();
}

std::vector<std::string> parse_texts(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& each : list.as_array()) texts.push_back(each.as_string());
  return texts;
}

std::string nodes_json(const std::map<std::string, double>& nodes) {
  return row_json({nodes.begin(), nodes.end()});
}

Row parse_row(const Json& json) {
  Row row;
  for (const auto& [name, cell] : json.as_object()) {
    if (cell.is_number())
      row.emplace_back(name, cell.as_number());
    else
      row.emplace_back(name, cell.is_string() ? cell.as_string() : "none");  // NaN is null.
  }
  return row;
}

// ---- Text

std::string cell_text(const Row& row, size_t column) {
  const auto& cell = row[column].second;
  if (const double* const number = std::get_if<double>(&cell))
    return fmt::format("{:.6g}", *number);
  return std::get<std::string>(cell);
}

bool same_columns(const Row& a, const Row& b) {
  return std::ranges::equal(a, b, {}, &Row::value_type::first, &Row::value_type::first);
}

// Rows with equal columns as a table.
std::string table_text(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < rows.front().size(); ++i) {
    widths.push_back(rows.front()[i].first.size());
    for (const Row& row : rows) widths[i] = std::max(widths[i], cell_text(row, i).size());
  }
  const auto line = [&](const auto& text_of) {
    std::string text;
    for (size_t i = 0; i < widths.size(); ++i)
      text += fmt::format("  {:<{}}", text_of(i), widths[i]);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line([&](size_t i) { return rows.front()[i].first; });
  for (const Row& row : rows) text += line([&](size_t i) { return cell_text(row, i); });
  return text + "\n";
}

std::string tables_text(const std::vector<Result>& results, bool whole) {
  std::string text;
  std::vector<Row> rows;
  for (const Result& result : results) {
    if (!whole && result.stage != kStages) continue;
    for (const Row& row : result.rows) {
      if (!rows.empty() && !same_columns(rows.front(), row)) {
        text += table_text(rows);
        rows.clear();
      }
      rows.push_back(row);
    }
  }
  return rows.empty() ? text : text + table_text(rows);
}

std::string stages_text(const Report& report, const std::vector<Item>& items) {
  std::vector<Row> rows;
  for (int stage = 1; stage <= kStages; ++stage) {
    const auto count = [&](const char* status) {
      return static_cast<double>(std::ranges::count_if(report.results(), [&](const Result& each) {
        return each.stage == stage && each.status == status;
      }));
    };
    double seconds = 0.0;
    for (const Result& each : report.results())
      if (each.stage == stage) seconds += each.seconds;
    const auto missing = std::ranges::count_if(items, [&](const Item& item) {
      return item.stage == stage && report.find(item.name) == nullptr;
    });
    rows.push_back({{"stage", fmt::format("{} {}", stage, stage_title(stage))},
                    {"passed", count("passed")},
                    {"failed", count("failed")},
                    {"not tested", count("not tested")},
                    {"not run", static_cast<double>(missing)},
                    {"seconds", fmt::format("{:.1f}", seconds)}});
  }
  std::map<std::string, double> nodes;
  for (const Result& each : report.results())
    for (const auto& [name, number] : each.nodes) nodes[name] += number;
  std::vector<std::string> texts;
  for (const auto& [name, number] : nodes) texts.push_back(fmt::format("{} {}", name, number));
  return table_text(rows) + fmt::format("nodes by implementation: {}\n\n", fmt::join(texts, ", "));
}

std::string failures_text(const std::vector<Result>& results, bool whole) {
  std::string text;
  for (const Result& each : results) {
    if (each.status != "failed") continue;
    text += fmt::format("FAILED {} (stage {})\n", each.name, each.stage);
    const size_t shown = whole ? each.failures.size() : std::min<size_t>(2, each.failures.size());
    for (size_t i = 0; i < shown; ++i) text += fmt::format("  {}\n", each.failures[i]);
    if (shown < each.failures.size())
      text += fmt::format("  and {} more\n", each.failures.size() - shown);
    for (const Retry& retry : each.retries)
      text += fmt::format("  {}: {}\n", retry.change, retry.status);
    text += fmt::format("  {}\n\n", each.verdict);
  }
  return text;
}

// Items that were not tested for the same reason, in one line.
std::string not_tested_text(const std::vector<Result>& results) {
  std::vector<std::pair<std::string, int>> reasons;
  for (const Result& each : results) {
    if (each.status != "not tested") continue;
    const std::string reason = fmt::format("stage {}: {}", each.stage, each.failures.at(0));
    auto found = std::ranges::find(reasons, reason, &std::pair<std::string, int>::first);
    if (found == reasons.end()) found = reasons.insert(reasons.end(), {reason, 0});
    ++found->second;
  }
  std::string text;
  for (const auto& [reason, count] : reasons)
    text += fmt::format("not tested: {} of {}\n", count, reason);
  return text.empty() ? "" : text + "\n";
}

}  // namespace

std::string result_json(const Result& result) {
  const std::string text =
      JsonLine()
          .add("stage", int64_t{result.stage})
          .add("name", result.name)
          .add("status", result.status)
          .add("seconds", result.seconds)
          .add_raw("failures", json_list(result.failures, json_quoted))
          .add_raw("rows", json_list(result.rows, row_json))
          .add_raw("nodes", nodes_json(result.nodes))
          .add_raw(
              "retries",
              json_list(
                  result.retries,
                  [](const Retry& each) {
                    return JsonLine().add("change", each.change).add("status", each.status).text();
                  }))
          .add("verdict", result.verdict)
          .add("log", result.log)
          .text();
  return valid_utf8(text);  // A log may have any bytes.
}

Result parse_result(const Json& json) {
  Result result{.stage = static_cast<int>(json.at("stage").as_integer()),
                .name = json.at("name").as_string(),
                .status = json.at("status").as_string(),
                .seconds = json.at("seconds").as_number(),
                .failures = parse_texts(json.at("failures")),
                .verdict = json.at("verdict").as_string(),
                .log = json.at("log").as_string()};
  for (const Json& each : json.at("rows").as_array()) result.rows.push_back(parse_row(each));
  for (const auto& [name, number] : json.at("nodes").as_object())
    result.nodes[name] = number.as_number();
  for (const Json& each : json.at("retries").as_array())
    result.retries.push_back({each.at("change").as_string(), each.at("status").as_string()});
  return result;
}

Report::Report(const std::filesystem::path& folder, std::string about)
    : file_(folder / "report.json"), about_(std::move(about)) {
  if (!std::filesystem::exists(file_)) return;
  const Json json = parse_json(read_file(file_), file_.string());
  if (json.at("about").as_string() != about_)
    fail("{} is of {}, but this is {}; name another folder with --output=DIR, or remove that one",
         file_.string(), json.at("about").as_string(), about_);
  running_ = json.at("running").as_string();
  attempts_ = static_cast<int>(json.at("attempts").as_integer());
  for (const Json& each : json.at("items").as_array()) results_.push_back(parse_result(each));
}

const Result* Report::find(std::string_view item) const {
  const auto found = std::ranges::find(results_, item, &Result::name);
  return found == results_.end() ? nullptr : &*found;
}

void Report::forget_what_did_not_pass() {
  std::erase_if(results_, [](const Result& each) { return each.status != "passed"; });
}

int Report::begin(const std::string& item) {
  attempts_ = running_ == item ? attempts_ + 1 : 1;
  running_ = item;
  save();
  return attempts_;
}

void Report::add(Result result) {
  running_.clear();
  attempts_ = 0;
  results_.push_back(std::move(result));
  save();
}

void Report::save() const {
  std::vector<std::string> lines;
  for (const Result& each : results_) lines.push_back(result_json(each));
  const std::string text = JsonLine()
                               .add("about", about_)
                               .add("running", running_)
                               .add("attempts", int64_t{attempts_})
                               .add_raw("items", fmt::format("[\n{}\n]", fmt::join(lines, ",\n")))
                               .text();
  write_file_atomically(file_, text + "\n");
}

std::string report_text(const Report& report, const std::vector<Item>& items, bool whole) {
  return stages_text(report, items) + tables_text(report.results(), whole) +
         not_tested_text(report.results()) + failures_text(report.results(), whole);
}

}  // namespace tessera::cuda
