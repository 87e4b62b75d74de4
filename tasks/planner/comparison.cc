// SPDX-License-Identifier: Apache-2.0
// The changes between two plans of a step: memory, bytes sent and predicted time, by line of layer
// code; --mode=plan --compare_plan=OTHER.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <ranges>
#include <vector>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tasks/planner/plan.h"
#include "tasks/planner/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostChanges = 20;  // Rows of a table; the rest is summed up.

using Format = std::string (*)(double);

std::string as_bytes(double value) {
  const std::string text = size_text(static_cast<int64_t>(value));  // With spaces to align.
  return text.substr(0, text.find_last_not_of(' ') + 1);
}
std::string as_count(double value) { return fmt::format("{:.0f}", value); }
std::string as_flops(double value) { return fmt::format("{:.4g}", value); }
std::string as_milliseconds(double value) { return fmt::format("{:.3f} ms", value * 1e3); }
std::string as_percent(double value) { return fmt::format("{:.1f} %", value * 100.0); }

struct Row {
  std::string what;
  double before = 0.0, now = 0.0;
  Format format = as_bytes;

  double change() const { return now - before; }
};

// "-1.25 GiB (-12.3 %)"; "" if nothing changes.
std::string change_text(const Row& row) {
  if (row.before == row.now) return "";
  std::string text =
      fmt::format("{}{}", row.now > row.before ? "+" : "-", row.format(std::abs(row.change())));
  if (row.before != 0.0) text += fmt::format(" ({:+.1f} %)", 100.0 * row.change() / row.before);
  return text;
}

std::string table(std::string_view heading, const std::vector<Row>& rows) {
  std::string text = fmt::format("| {} | before | now | change |\n|---|--:|--:|--:|\n", heading);
  for (const Row& row : rows)
    text += fmt::format("| {} | {} | {} | {} |\n", row.what, row.format(row.before),
                        row.format(row.now), change_text(row));
  return text + "\n";
}

// The rows that change, the largest change first; "" if none does.
std::string changes(std::string_view heading, std::vector<Row> rows) {
  std::erase_if(rows, [](const Row& row) { return row.before == row.now; });
  if (rows.empty()) return "";
  std::ranges::stable_sort(rows, std::greater<>(),
                           [](const Row& row) { return std::abs(row.change()); });
  if (rows.size() > kMostChanges + 1) {
    Row others{.what = fmt::format("{} others", rows.size() - kMostChanges),
               .format = rows.front().format};
    for (size_t i = kMostChanges; i < rows.size(); ++i) {
      others.before += rows[i].before;
      others.now += rows[i].now;
    }
    rows.resize(kMostChanges);
    rows.push_back(others);
  }
  return table(heading, rows);
}

Row row(std::string what, const Json& before, const Json& now, std::string_view member,
        Format format) {
  return {std::move(what), before.at(member).as_number(), now.at(member).as_number(), format};
}

double bytes_over(const Json& plan, std::string_view link) {
  double sum = 0.0;
  for (const Json& total : plan.at("communication").as_array())
    if (total.at("link").as_string() == link) sum += total.at("bytes").as_number();
  return sum;
}

std::vector<Row> rows_of_step(const Json& before, const Json& now) {
  std::vector<Row> rows = {
      row("parameters", before, now, "parameters", as_count),
      row("devices", before, now, "devices", as_count),
      row("tokens per step", before, now, "tokens_per_step", as_count),
      row("FLOPs of the model", before, now, "flops_per_step", as_flops),
      row("FLOPs of a device, with recomputation", before, now, "flops_per_device", as_flops),
      row("launches", before, now, "launches_per_step", as_count),
      row("memory at the peak", before, now, "peak_bytes", as_bytes),
      row("memory allocated", before, now, "arena_bytes", as_bytes),
      {"sent within slices", bytes_over(before, "ici"), bytes_over(now, "ici")},
      {"sent between slices", bytes_over(before, "dcn"), bytes_over(now, "dcn")}};
  const Json* earlier = before.find("prediction");
  const Json* later = now.find("prediction");
  if (earlier == nullptr || later == nullptr) return rows;
  rows.push_back(row("predicted step", *earlier, *later, "step_seconds", as_milliseconds));
  rows.push_back(row("tokens per second", *earlier, *later, "tokens_per_second", as_count));
  rows.push_back(row("MFU", *earlier, *later, "mfu", as_percent));
  return rows;
}

// Rows for a member with named bytes, such as `memory_per_device`.
std::vector<Row> rows_of_names(const Json& before, const Json& now, std::string_view member) {
  std::vector<Row> rows;
  for (const auto& [name, bytes] : before.at(member).as_object())
    rows.push_back({name, bytes.as_number(), 0.0});
  for (const auto& [name, bytes] : now.at(member).as_object()) {
    auto row = std::ranges::find(rows, name, &Row::what);
    if (row == rows.end()) row = rows.insert(row, Row{.what = name});
    row->now = bytes.as_number();
  }
  return rows;
}

std::string words(const Json& list) {
  std::string text;
  for (const Json& each : list.as_array()) text += (text.empty() ? "" : ", ") + each.as_string();
  return text;
}

// "`ffn.cc:61` `lm.ffn`, backward: all_gather"
std::string place_text(const Json& one, const std::string& what) {
  const std::string& source = one.at("source").as_string();
  const std::string& path = one.at("path").as_string();
  return fmt::format("{}{}, {}: {}", source.empty() ? "" : fmt::format("`{}` ", source),
                     path.empty() ? "the step" : fmt::format("`{}`", path),
                     one.at("phase").as_string(), what);
}

// What a layer does in one line of code and one phase.
struct Line {
  std::string layer;  // Its path, phase and what it does, and the file.
  std::string source;
  bool is_before = false, is_now = false;
  Row row;
};

// The lines of both plans. `what_of` names an element beside its layer and phase, `amount_of` is
// what counts.
template <typename What, typename Amount>
std::vector<Line> lines_of(const JsonArray& before, const JsonArray& now, Format format,
                           const What& what_of, const Amount& amount_of) {
  std::vector<Line> lines;
  std::map<std::string, size_t> places;
  for (const JsonArray* list : {&before, &now}) {
    for (const Json& one : *list) {
      const std::string what = what_of(one);
      const std::string& source = one.at("source").as_string();
      const std::string layer =
          fmt::format("{}\n{}\n{}\n{}", one.at("path").as_string(), one.at("phase").as_string(),
                      what, source.substr(0, source.rfind(':')));
      const auto [place, is_new] = places.try_emplace(layer + "\n" + source, lines.size());
      if (is_new)
        lines.push_back(
            {.layer = layer, .source = source, .row = {place_text(one, what), 0.0, 0.0, format}});
      Line& line = lines[place->second];
      (list == &before ? line.is_before : line.is_now) = true;
      (list == &before ? line.row.before : line.row.now) += amount_of(one);
    }
  }
  return lines;
}

// Lines of code move: the first line that only the earlier plan has is the first one that only the
// later plan has, if layer, phase and op are the same.
std::vector<Row> paired(const std::vector<Line>& lines) {
  std::map<std::string, std::deque<double>> moved;  // Lines that only the earlier plan has.
  for (const Line& line : lines)
    if (!line.is_now) moved[line.layer].push_back(line.row.before);
  std::vector<Row> rows;
  for (const Line& line : lines) {
    if (!line.is_now) continue;
    rows.push_back(line.row);
    if (line.is_before || moved[line.layer].empty()) continue;
    rows.back().before = moved[line.layer].front();
    moved[line.layer].pop_front();
  }
  for (const Line& line : lines | std::views::reverse) {
    if (line.is_now || moved[line.layer].empty()) continue;
    moved[line.layer].pop_back();
    rows.push_back(line.row);
  }
  return rows;
}

std::vector<Row> rows_of_collectives(const Json& before, const Json& now) {
  return paired(lines_of(
      before.at("collectives").as_array(), now.at("collectives").as_array(), as_bytes,
      [](const Json& one) {
        return fmt::format("{} over {} in {}", one.at("op").as_string(), words(one.at("mesh_axes")),
                           one.at("dtype").as_string());
      },
      [](const Json& one) { return one.at("bytes").as_number() * one.at("count").as_number(); }));
}

std::vector<Row> rows_of_launches(const Json& before, const Json& now) {
  return paired(lines_of(
      before.at("launches").as_array(), now.at("launches").as_array(), as_milliseconds,
      [](const Json& one) { return one.at("op").as_string(); },
      [](const Json& one) { return one.at("adds_seconds").as_number(); }));
}

// Why there are no predicted times, if one of the plans has some.
std::string prediction_note(const Json& before, const Json& now) {
  const Json* earlier = before.find("prediction");
  const Json* later = now.find("prediction");
  if (earlier == nullptr && later == nullptr) return "";
  if (earlier == nullptr || later == nullptr) {
    const Json& with = *(earlier == nullptr ? later : earlier);
    return fmt::format(
        "Times are not compared: only the {} plan has a prediction (--hardware={}).\n\n",
        earlier == nullptr ? "new" : "earlier", with.at("hardware").as_string());
  }
  const std::string& a = earlier->at("hardware").as_string();
  const std::string& b = later->at("hardware").as_string();
  return a == b ? "" : fmt::format("Times are for {} before and for {} now.\n\n", a, b);
}

}  // namespace

std::string plan_comparison(const Json& before, const Json& now) {
  std::string text =
      table("a step, on each device", rows_of_step(before, now)) + prediction_note(before, now);
  text += changes("memory at the peak", rows_of_names(before, now, "memory_per_device"));
  text += changes("saved for the backward pass", rows_of_names(before, now, "saved_for_backward"));
  text += changes("sent per step", rows_of_collectives(before, now));
  const Json* earlier = before.find("prediction");
  const Json* later = now.find("prediction");
  if (earlier != nullptr && later != nullptr)
    text += changes("predicted time", rows_of_launches(*earlier, *later));
  text.pop_back();  // One line end is enough.
  return text;
}

}  // namespace tessera
