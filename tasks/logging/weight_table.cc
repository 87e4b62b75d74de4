// SPDX-License-Identifier: Apache-2.0
#include "tasks/logging/weight_table.h"

#include <algorithm>
#include <optional>
#include <regex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tasks/logging/console.h"

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
                     fmt::format("{} {:.3g}", enum_name(first.init.kind), first.init.scale)});
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

// "[12]" is an index; "[]", "[x]", leading zeros and very long numbers are parts of a name.
std::optional<int64_t> index_of(const std::string& token) {
  static const std::regex kIndex(R"(\[(0|[1-9][0-9]{0,8})\])");
  std::smatch match;
  if (!std::regex_match(token, match, kIndex)) return std::nullopt;
  return std::stoll(match[1]);
}

// The pieces of a path: "lm", ".x_layers", "[3]", ".ffn".
std::vector<std::string> tokens_of(const std::string& path) {
  std::vector<std::string> tokens;
  size_t begin = 0;
  const auto cut = [&](size_t end) {
    if (end > begin) tokens.push_back(path.substr(begin, end - begin));
    begin = end;
  };
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') cut(i);
    if (path[i] != '[') continue;
    const size_t close = path.find(']', i);
    if (close == std::string::npos || !index_of(path.substr(i, close + 1 - i))) continue;
    cut(i);
    cut(close + 1);
    i = close;
  }
  cut(path.size());
  return tokens;
}

// The paths as a prefix tree of pieces.
struct Part {
  std::string token;
  std::vector<size_t> rows;  // Whose path ends here.
  std::vector<Part> parts;
};

void insert(Part& root, const std::string& path, size_t row) {
  Part* part = &root;
  for (const std::string& token : tokens_of(path)) {
    auto next = std::ranges::find(part->parts, token, &Part::token);
    if (next == part->parts.end()) next = part->parts.insert(next, Part{token, {}, {}});
    part = &*next;
  }
  part->rows.push_back(row);
}

// Elements of a list with the same rows.
struct Alike {
  std::vector<int64_t> indices;
  std::vector<FoldedRow> rows;  // Rows of all elements; the first part belongs to the first one.
};

class Folding {
 public:
  explicit Folding(const std::vector<PathRow>& given) : given_(given) {}

  // The rows of an element by the rest of their paths.
  std::vector<FoldedRow> fold(const Part& part) const {
    std::vector<FoldedRow> rows;
    for (const size_t row : part.rows) rows.push_back({"", {row}});
    bool list_done = false;
    for (const Part& each : part.parts) {
      if (!index_of(each.token)) {
        append(each.token, fold(each), rows);
      } else if (!std::exchange(list_done, true)) {
        for (const Alike& alike : elements(part))
          append(fmt::format("[{}]", index_text(alike.indices)), alike.rows, rows);
      }
    }
    return rows;
  }

 private:
  static void append(const std::string& token, std::vector<FoldedRow> from,
                     std::vector<FoldedRow>& to) {
    for (FoldedRow& row : from) to.push_back({token + row.path, std::move(row.rows)});
  }

  bool same(const std::vector<FoldedRow>& a, const std::vector<FoldedRow>& b) const {
    return std::ranges::equal(a, b, [&](const FoldedRow& one, const FoldedRow& other) {
      return one.path == other.path && given_[one.rows[0]].kind == given_[other.rows[0]].kind;
    });
  }

  // The elements of a list by kind, kinds in order of first appearance.
  std::vector<Alike> elements(const Part& list) const {
    std::vector<const Part*> sorted;
    for (const Part& each : list.parts)
      if (index_of(each.token)) sorted.push_back(&each);
    std::ranges::sort(sorted, {}, [](const Part* part) { return *index_of(part->token); });
    std::vector<Alike> kinds;
    for (const Part* each : sorted) {
      std::vector<FoldedRow> rows = fold(*each);
      auto kind =
          std::ranges::find_if(kinds, [&](const Alike& known) { return same(known.rows, rows); });
      if (kind == kinds.end()) {
        kinds.push_back({{*index_of(each->token)}, std::move(rows)});
        continue;
      }
      kind->indices.push_back(*index_of(each->token));
      for (size_t i = 0; i < rows.size(); ++i)
        kind->rows[i].rows.insert(kind->rows[i].rows.end(), rows[i].rows.begin(),
                                  rows[i].rows.end());
    }
    return kinds;
  }

  const std::vector<PathRow>& given_;
};

// "0..2,4,6"
std::string runs_text(const std::vector<int64_t>& indices) {
  std::string text;
  for (size_t i = 0; i < indices.size();) {
    size_t end = i + 1;
    while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(indices[i]);
    if (end > i + 1) text += fmt::format("..{}", indices[end - 1]);
    i = end;
  }
  return text;
}

// "0,2,..,46": equal steps, if enough indices are left out to be shorter.
std::optional<std::string> steps_text(const std::vector<int64_t>& indices) {
  if (indices.size() < 5) return std::nullopt;
  const int64_t step = indices[1] - indices[0];
  for (size_t i = 1; i < indices.size(); ++i)
    if (step == 1 || indices[i] - indices[i - 1] != step) return std::nullopt;
  return fmt::format("{},{},..,{}", indices[0], indices[1], indices.back());
}

std::string listed_text(const std::vector<int64_t>& indices) {
  const std::string runs = runs_text(indices);
  const std::string steps = steps_text(indices).value_or(runs);
  return steps.size() < runs.size() ? steps : runs;
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

std::string index_text(const std::vector<int64_t>& indices) {
  const std::string listed = listed_text(indices);
  const int64_t spanned = indices.back() - indices.front() + 1;
  if (spanned == std::ssize(indices) || spanned > 2 * std::ssize(indices)) return listed;
  std::vector<int64_t> others;
  for (size_t i = 1; i < indices.size(); ++i)
    for (int64_t other = indices[i - 1] + 1; other < indices[i]; ++other) others.push_back(other);
  const std::string excepted =
      fmt::format("{}..{} except {}", indices.front(), indices.back(), listed_text(others));
  return excepted.size() < listed.size() ? excepted : listed;
}

std::vector<FoldedRow> fold_layers(const std::vector<PathRow>& rows) {
  Part root;
  for (size_t row = 0; row < rows.size(); ++row) insert(root, rows[row].path, row);
  return Folding(rows).fold(root);
}

}  // namespace tessera
