// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/fold_layers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

// Parses the list and number of an element: {"", 12} for "[12]", {".part", 12} for ".part12". "[]",
// "[x]", leading zeros, very long numbers and those of other names are parts of a name.
std::optional<std::pair<std::string, int64_t>> index_of(const std::string& token) {
  static const std::regex kIndex(R"((?:\[|(\.?part))(0|[1-9][0-9]{0,8})\]?)");
  std::smatch match;
  const bool ends_so = token.ends_with(']') || (token.back() >= '0' && token.back() <= '9');
  if (!ends_so || !std::regex_match(token, match, kIndex)) return std::nullopt;
  return std::pair(match[1].str(), int64_t{std::stoll(match[2])});
}

// Splits a path into pieces: "lm", ".transformer", ".part0", ".x_layers", "[3]", ".ffn".
std::vector<std::string> tokens_of(std::string_view path) {
  std::vector<std::string> tokens;
  size_t begin = 0;
  const auto cut = [&](size_t end) {
    if (end > begin) tokens.emplace_back(path.substr(begin, end - begin));
    begin = end;
  };
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') cut(i);
    if (path[i] != '[') continue;
    const size_t close = path.find(']', i);
    if (close == path.npos || !index_of(std::string(path.substr(i, close + 1 - i)))) continue;
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
  std::vector<size_t> rows;  // Rows whose path ends here.
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

// A row of some elements of a list, without their indices.
struct ElementRow {
  std::vector<int64_t> numbers;
  FoldedRow row;
};

// Elements of a list with the same rows, except for the kinds of few of them.
struct Alike {
  std::string list;
  std::vector<std::vector<ElementRow>> rows;  // By place in an element, then by kind.
};

class Folding {
 public:
  explicit Folding(const std::vector<PathRow>& given) : given_(given) {}

  // Returns the rows of an element by the rest of their paths.
  std::vector<FoldedRow> fold(const Part& part) const {
    std::vector<FoldedRow> rows;
    for (const size_t row : part.rows) rows.push_back({"", {row}});
    bool list_done = false;
    for (const Part& each : part.parts) {
      if (!index_of(each.token)) {
        append(each.token, fold(each), rows);
      } else if (!std::exchange(list_done, true)) {
        for (const Alike& alike : elements(part)) append(alike, rows);
      }
    }
    return rows;
  }

 private:
  static void append(const std::string& token, std::vector<FoldedRow> from,
                     std::vector<FoldedRow>& to) {
    for (FoldedRow& row : from) to.push_back({token + row.path, std::move(row.rows)});
  }

  // Appends first the rows that all elements have in common.
  static void append(const Alike& alike, std::vector<FoldedRow>& to) {
    for (const bool common : {true, false})
      for (const std::vector<ElementRow>& kinds : alike.rows)
        for (const ElementRow& each : kinds)
          if ((kinds.size() == 1) == common)
            append(token_of(alike.list, each.numbers), {each.row}, to);
  }

  static std::string token_of(const std::string& list, const std::vector<int64_t>& numbers) {
    const bool is_one_part = !list.empty() && numbers.size() == 1;
    return is_one_part ? list + index_text(numbers)
                       : fmt::format("{}[{}]", list, index_text(numbers));
  }

  const std::string& kind_of(const FoldedRow& row) const { return given_[row.rows[0]].kind; }

  bool is_alike(const Alike& known, const std::vector<FoldedRow>& rows) const {
    size_t different = 0;
    const auto same_path = [&](const std::vector<ElementRow>& kinds, const FoldedRow& row) {
      if (kind_of(kinds[0].row) != kind_of(row)) ++different;
      return kinds[0].row.path == row.path;
    };
    return std::ranges::equal(known.rows, rows, same_path) && different * 4 <= rows.size();
  }

  void add(int64_t number, const FoldedRow& row, std::vector<ElementRow>& kinds) const {
    auto kind = std::ranges::find_if(
        kinds, [&](const ElementRow& each) { return kind_of(each.row) == kind_of(row); });
    if (kind == kinds.end()) kind = kinds.insert(kind, {{}, {row.path, {}}});
    kind->numbers.push_back(number);
    kind->row.rows.insert(kind->row.rows.end(), row.rows.begin(), row.rows.end());
  }

  // Returns the elements of a list, in order of first appearance.
  std::vector<Alike> elements(const Part& part) const {
    std::multimap<int64_t, const Part*> sorted;
    for (const Part& each : part.parts)
      if (const auto index = index_of(each.token)) sorted.emplace(index->second, &each);
    std::vector<Alike> all;
    for (const auto& [number, element] : sorted) {
      const std::vector<FoldedRow> rows = fold(*element);
      const std::string list = index_of(element->token)->first;
      auto alike = std::ranges::find_if(
          all, [&](const Alike& known) { return known.list == list && is_alike(known, rows); });
      if (alike == all.end())
        alike = all.insert(alike, {list, std::vector<std::vector<ElementRow>>(rows.size())});
      for (size_t i = 0; i < rows.size(); ++i) add(number, rows[i], alike->rows[i]);
    }
    return all;
  }

  const std::vector<PathRow>& given_;
};

// Formats "0..2,4,6".
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

// Formats "0,2,..,46": equal steps, if enough indices are left out to be shorter.
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

std::string without_indices(std::string_view path) {
  std::string text;
  for (const std::string& token : tokens_of(path)) {
    const auto index = index_of(token);
    text += index ? index->first + "[]" : token;
  }
  return text;
}

}  // namespace tessera
