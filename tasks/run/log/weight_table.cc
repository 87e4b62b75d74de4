// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/weight_table.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/hparams/fold_layers.h"

namespace tessera {
namespace {

struct Line {
  std::string name;
  std::string type;   // "": a heading, above the weights of a layer.
  int64_t total = 0;  // Elements.
  int64_t count = 1;  // Layers that the line stands for.
  std::string init;
};

std::vector<PathRow> path_rows(const ParameterTable& table) {
  std::vector<PathRow> rows;
  for (const Parameter& each : table.parameters()) {
    const Type declared{each.type.dtype, each.layout, {}};
    rows.push_back({each.path, fmt::format("{}; {} {}; {}; {}", each.type.text_sized(),
                                           enum_name(each.init.kind), each.init.scale,
                                           declared.text_sized(), rules_text(each.rules))});
  }
  return rows;
}

// "f32[embed=128 mlp=384]", without quotes to save columns.
std::string type_text(const Type& type) {
  std::string text = type.text_sized();
  std::erase(text, '"');
  return text;
}

// The heading of a weight: "lm.x_layers[0..3]" for "lm.x_layers[0..3].ffn.up"; "" if it is in no
// list of layers.
std::string layer_of(const std::string& path) {
  const size_t end = path.rfind("].");
  return end == std::string::npos ? "" : path.substr(0, end + 1);
}

std::vector<Line> weight_lines(const ParameterTable& table) {
  std::vector<Line> lines;
  std::string layer;
  size_t heading = 0;
  for (const FoldedRow& row : fold_layers(path_rows(table))) {
    const Parameter& first = table.at(static_cast<int32_t>(row.rows[0]));
    const int64_t count = std::ssize(row.rows), total = count * first.type.elements();
    if (layer_of(row.path) != layer) {
      layer = layer_of(row.path);
      heading = lines.size();
      if (!layer.empty()) lines.push_back({.name = layer, .count = count});
    }
    if (!layer.empty()) lines[heading].total += total;
    lines.push_back({layer.empty() ? row.path : "  " + row.path.substr(layer.size() + 1),
                     type_text(first.type), total, count,
                     fmt::format("{} {:.3g}", enum_name(first.init.kind),
                                 first.init.scale * width_ratios(first).initial)});
  }
  return lines;
}

std::string count_of(int64_t elements) { return count_text(static_cast<double>(elements)); }

// "849.9k = 4 x 212.5k", the first number padded to `width` columns.
std::string elements_text(const Line& line, size_t width) {
  std::string result = fmt::format("{:>{}}", count_of(line.total), width);
  if (line.count > 1)
    result += fmt::format(" = {} x {}", line.count, count_of(line.total / line.count));
  return result;
}

}  // namespace

std::string weight_table(const ParameterTable& table) {
  const std::vector<Line> lines = weight_lines(table);
  size_t names = 0, types = 0, totals = 0, elements = 0;
  for (const Line& line : lines) {
    if (!line.type.empty()) names = std::max(names, line.name.size());
    types = std::max(types, line.type.size());
    totals = std::max(totals, count_of(line.total).size());
  }
  for (const Line& line : lines) elements = std::max(elements, elements_text(line, totals).size());
  std::string text;
  for (const Line& line : lines) {
    const std::string left =
        line.type.empty() ? fmt::format("{:<{}}", line.name, names + 2 + types)
                          : fmt::format("{:<{}}  {:<{}}", line.name, names, line.type, types);
    std::string whole =
        fmt::format("{}  {:<{}}  {}", left, elements_text(line, totals), elements, line.init);
    whole.erase(whole.find_last_not_of(' ') + 1);
    text += whole + "\n";
  }
  return text;
}

}  // namespace tessera
