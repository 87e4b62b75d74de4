// SPDX-License-Identifier: Apache-2.0
#include "tasks/logging/fold_layers.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

// "[12]" is an index, "[]" and "[x]" are part of a name. More digits than any list has are a name
// too, and so are leading zeros, which an index does not print.
std::optional<int64_t> index_of(std::string_view token) {
  constexpr size_t kMostDigits = 9;
  if (token.size() < 3 || token.front() != '[' || token.back() != ']') return std::nullopt;
  const std::string_view digits = token.substr(1, token.size() - 2);
  const bool numeric =
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!numeric || digits.size() > kMostDigits || (digits[0] == '0' && digits.size() > 1))
    return std::nullopt;
  return std::stoll(std::string(digits));
}

// Pieces of a path, which joined give it again: "lm", ".x_layers", "[3]", ".ffn".
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

// The paths as a tree, which tokens lead through.
struct Part {
  std::string token;
  std::vector<size_t> rows;  // Whose path ends here.
  std::vector<Part> parts;
};

void insert(Part& root, const std::string& path, size_t row) {
  Part* part = &root;
  for (const std::string& token : tokens_of(path)) {
    auto next = std::find_if(part->parts.begin(), part->parts.end(),
                             [&](const Part& each) { return each.token == token; });
    if (next == part->parts.end()) next = part->parts.insert(next, Part{token, {}, {}});
    part = &*next;
  }
  part->rows.push_back(row);
}

// Elements of a list that have the same rows.
struct Alike {
  std::vector<int64_t> indices;
  std::vector<FoldedRow> rows;  // Of all; the first of each are the first element's.
};

class Folding {
 public:
  explicit Folding(const std::vector<PathRow>& given) : given_(given) {}

  // The rows of a part, by the rest of their paths.
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
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(), [&](const FoldedRow& one, const FoldedRow& other) {
          return one.path == other.path && given_[one.rows[0]].kind == given_[other.rows[0]].kind;
        });
  }

  // The elements of a list by kind, kinds in the order of their first elements.
  std::vector<Alike> elements(const Part& list) const {
    std::vector<const Part*> sorted;
    for (const Part& each : list.parts)
      if (index_of(each.token)) sorted.push_back(&each);
    std::sort(sorted.begin(), sorted.end(), [](const Part* a, const Part* b) {
      return *index_of(a->token) < *index_of(b->token);
    });
    std::vector<Alike> kinds;
    for (const Part* each : sorted) {
      std::vector<FoldedRow> rows = fold(*each);
      auto kind = std::find_if(kinds.begin(), kinds.end(),
                               [&](const Alike& known) { return same(known.rows, rows); });
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

// "0,2,..,46": equal steps, of which so many are left out that it pays.
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

}  // namespace tessera
