// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan/plan_report.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/logging/console.h"

namespace tessera {
namespace {

std::string bytes_json(const std::vector<NamedBytes>& list) {
  JsonLine json;
  for (const auto& [name, bytes] : list) json.add(name, bytes);
  return json.text();
}

// One array element per line.
template <typename List, typename Text>
std::string array_json(const List& list, Text text) {
  std::string json;
  for (const auto& element : list) json += (json.empty() ? "\n  " : ",\n  ") + text(element);
  return json.empty() ? "[]" : "[" + json + "\n]";
}

std::string names_json(const std::vector<std::string>& names) {
  std::string json;
  for (const std::string& name : names) json += (json.empty() ? "" : ", ") + json_quoted(name);
  return "[" + json + "]";
}

std::string axis_json(const MeshAxis& axis) {
  return JsonLine().add("name", axis.name).add("ici", axis.ici).add("dcn", axis.dcn).text();
}

std::string total_json(const AxisTotal& total) {
  return JsonLine()
      .add_raw("mesh_axes", names_json(total.mesh_axes))
      .add("link", link_name(total.link))
      .add("count", total.count)
      .add("bytes", total.bytes)
      .text();
}

std::string collective_json(const PlannedCollective& one) {
  return JsonLine()
      .add("op", one.op)
      .add("value", one.value)
      .add_raw("mesh_axes", names_json(one.mesh_axes))
      .add("link", link_name(one.link))
      .add("dtype", dtype_name(one.dtype))
      .add("bytes", one.bytes)
      .add("count", one.count)
      .add("phase", phase_name(one.phase))
      .add("path", one.path)
      .add("source", one.source)
      .text();
}

constexpr size_t kColumns = 100;

// "1.25 GiB", with three digits.
std::string size_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  const int digits = unit == 0 || value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2;
  return fmt::format("{:.{}f} {:<3}", value, digits, kUnits[unit]);
}

std::string axes_text(const std::vector<std::string>& mesh_axes) {
  return fmt::format("{}", fmt::join(mesh_axes, "+"));
}

std::string mesh_text(const std::vector<MeshAxis>& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.name, axis.size());
    if (axis.dcn > 1) text += fmt::format(" ({} within a slice x {} slices)", axis.ici, axis.dcn);
  }
  return text;
}

// At most `width` columns; keeps the end of a path, which is the most specific part.
std::string ending(std::string text, size_t width) {
  if (text.size() <= width) return text;
  return ".." + text.substr(text.size() + 2 - width);
}

std::string heading(std::string_view title) { return fmt::format("\n{}\n", title); }

std::string memory_text(const Plan& plan) {
  std::string text = heading("memory of a device, at the fullest moment of a step");
  for (const auto& [name, bytes] : plan.memory) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("  {:<24}{:>12}\n", words, size_text(bytes));
  }
  text += fmt::format("  {:<24}{:>12}   {} bytes\n", "peak", size_text(plan.peak), plan.peak);
  text += fmt::format("  {:<24}{:>12}   {} bytes, for all programs\n", "allocated",
                      size_text(plan.arena), plan.arena);
  text += heading("what a device keeps of the forward pass for the backward pass");
  for (const auto& [name, bytes] : plan.saved)
    text += fmt::format("  {:<40}{:>12}\n", ending(name, 39), size_text(bytes));
  return text;
}

std::string totals_text(const Plan& plan) {
  if (plan.totals.empty()) return heading("communication      none");
  std::string text = heading("communication of a device, a step");
  int64_t of_link[2] = {0, 0};
  for (const AxisTotal& total : plan.totals) {
    text += fmt::format("  over {:<24}{:>12}   {} collectives{}\n", axes_text(total.mesh_axes),
                        size_text(total.bytes), total.count,
                        total.link == Link::kDcn ? ", across slices" : "");
    of_link[static_cast<size_t>(total.link)] += total.bytes;
  }
  text += fmt::format("  {:<29}{:>12}\n  {:<29}{:>12}\n", "within slices (ICI)",
                      size_text(of_link[0]), "across slices (DCN)", size_text(of_link[1]));
  return text;
}

// The value's name, or the layer's path.
std::string what(const PlannedCollective& one) {
  const bool unnamed = one.value.starts_with(one.op);
  const bool says_layer = one.value.find(one.path) != std::string::npos;
  return !unnamed && says_layer ? one.value : one.path;
}

// The collectives that serve one line of code.
struct CollectiveLine {
  std::string source;
  int64_t bytes = 0;
  std::vector<const PlannedCollective*> collectives;
};

std::vector<CollectiveLine> collective_lines_of(const Plan& plan) {
  std::vector<CollectiveLine> lines;
  for (const PlannedCollective& one : plan.collectives) {
    auto line = std::find_if(lines.begin(), lines.end(), [&](const CollectiveLine& known) {
      return known.source == one.source;
    });
    if (line == lines.end()) line = lines.insert(line, {one.source, 0, {}});
    line->bytes += one.bytes_per_step();
    line->collectives.push_back(&one);
  }
  std::stable_sort(
      lines.begin(), lines.end(),
      [](const CollectiveLine& a, const CollectiveLine& b) { return a.bytes > b.bytes; });
  return lines;
}

// Collectives by the line of layer code that they serve, most bytes first.
std::string collectives_text(const Plan& plan) {
  if (plan.collectives.empty()) return "";
  std::string text = heading("collectives of a device, by the line of code that they serve");
  size_t width = 6;
  for (const AxisTotal& total : plan.totals)
    width = std::max(width, axes_text(total.mesh_axes).size() + 2);
  text += fmt::format("  {:<9}{:<15}{:<{}}{:<5}{:>7} {:>8}  {:>9}   {}\n", "phase", "op", "over",
                      width, "of", "times", "sent", "in a step", "what");
  for (const CollectiveLine& line : collective_lines_of(plan)) {
    text += line.source.empty() ? "(no line)\n" : line.source + "\n";
    for (const PlannedCollective* one : line.collectives) {
      const std::string row =
          fmt::format("  {:<9}{:<15}{:<{}}{:<5}{:>5} x {:>8}  {:>9}   ", phase_name(one->phase),
                      one->op, axes_text(one->mesh_axes), width, dtype_name(one->dtype), one->count,
                      size_text(one->bytes), size_text(one->bytes_per_step()));
      text += row + ending(what(*one), kColumns - std::min(row.size(), kColumns - 12)) + "\n";
    }
  }
  return text;
}

// Without trailing spaces.
std::string trimmed(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') result.erase(result.find_last_not_of(' ') + 1);
    result += c;
  }
  return result;
}

}  // namespace

void write_plan_files(const std::filesystem::path& run_directory, const Plan& plan) {
  write_file_atomically(run_directory / "plan.txt", plan_text(plan));
  write_file_atomically(run_directory / "plan.json", plan_json(plan) + "\n");
}

std::string plan_json(const Plan& plan) {
  return JsonLine()
      .add("parameters", plan.parameters)
      .add("devices", plan.devices)
      .add_raw("mesh", array_json(plan.mesh, axis_json))
      .add("tokens_per_step", plan.tokens_per_step)
      .add("flops_per_step", plan.flops_per_step)
      .add("flops_per_device", plan.flops_per_device)
      .add("launches_per_step", plan.launches)
      .add_raw("memory_per_device", bytes_json(plan.memory))
      .add("peak_bytes", plan.peak)
      .add("arena_bytes", plan.arena)
      .add_raw("saved_for_backward", bytes_json(plan.saved))
      .add_raw("communication", array_json(plan.totals, total_json))
      .add_raw("collectives", array_json(plan.collectives, collective_json))
      .text();
}

std::string plan_summary(const Plan& plan) {
  int64_t sent = 0;
  for (const AxisTotal& total : plan.totals) sent += total.bytes;
  return fmt::format("{} parameters; {} FLOPs and {} tokens a step; {} a device{}",
                     count_text(static_cast<double>(plan.parameters)),
                     count_text(plan.flops_per_step), plan.tokens_per_step, size_text(plan.arena),
                     sent > 0 ? fmt::format(", which sends {}", size_text(sent)) : "");
}

std::string plan_text(const Plan& plan) {
  std::string text = fmt::format(
      "parameters         {} ({})\n"
      "devices            {} ({})\n"
      "tokens a step      {}\n"
      "FLOPs a step       {:.4g} of the model; {:.4g} on each device, recomputation included\n"
      "launches a step    {}\n",
      plan.parameters, count_text(static_cast<double>(plan.parameters)), plan.devices,
      mesh_text(plan.mesh), plan.tokens_per_step, plan.flops_per_step, plan.flops_per_device,
      plan.launches);
  return trimmed(text + memory_text(plan) + totals_text(plan) + collectives_text(plan));
}

}  // namespace tessera
