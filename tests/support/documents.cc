// SPDX-License-Identifier: Apache-2.0
#include "tests/support/documents.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <regex>
#include <sstream>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFence = "```";
constexpr std::string_view kEllipsis = "…";

std::string without_spaces(std::string_view text) {
  std::string packed;
  for (const char c : text)
    if (std::isspace(static_cast<unsigned char>(c)) == 0) packed += c;
  return packed;
}

std::string dedented(const std::string& line, size_t indent) {
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  return line.substr(std::min(indent, first));
}

// Collects the blocks of a document, which is read line by line.
class BlockReader {
 public:
  explicit BlockReader(std::string document) : document_(std::move(document)) {}

  void read(const std::string& line) {
    ++number_;
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view rest = std::string_view(line).substr(indent);
    if (inside_) {
      if (rest.starts_with(kFence)) {
        inside_ = false;
      } else {
        blocks_.back().text += dedented(line, indent_) + "\n";
      }
    } else if (rest.starts_with(kFence)) {
      begin(rest.substr(kFence.size()), indent);
    } else {
      read_text(std::string(rest));
    }
  }
  std::vector<DocumentBlock> finish() {
    if (inside_) fail("{}: the block does not end", blocks_.back().place());
    require_no_annotation();
    return std::move(blocks_);
  }

 private:
  void begin(std::string_view language, size_t indent) {
    blocks_.push_back({.document = document_,
                       .line = number_ + 1,
                       .language = std::string(language),
                       .annotations = std::exchange(annotations_, {})});
    inside_ = true;
    indent_ = indent;
  }
  void read_text(const std::string& line) {
    static const std::regex kAnnotation(R"(<!-- test: ([a-z ]+?)(?:: (.*))? -->)");
    std::smatch match;
    if (std::regex_match(line, match, kAnnotation)) {
      annotations_.emplace_back(match[1].str(), match[2].str());
    } else {
      if (line.starts_with("<!-- test"))
        fail("{}:{}: expected <!-- test: KEY: VALUE -->, got {}", document_, number_, line);
      require_no_annotation();
    }
  }
  void require_no_annotation() const {
    if (!annotations_.empty())
      fail("{}:{}: an annotation stands directly before its block", document_, number_);
  }

  std::string document_;
  std::vector<DocumentBlock> blocks_;
  std::vector<std::pair<std::string, std::string>> annotations_;
  int number_ = 0;
  size_t indent_ = 0;
  bool inside_ = false;
};

}  // namespace

std::string DocumentBlock::place() const { return fmt::format("{}:{}", document, line); }

bool DocumentBlock::has(std::string_view key) const { return !values(key).empty(); }

std::string DocumentBlock::value(std::string_view key) const {
  const std::vector<std::string> all = values(key);
  return all.empty() ? "" : all.front();
}

std::vector<std::string> DocumentBlock::values(std::string_view key) const {
  std::vector<std::string> values;
  for (const auto& [name, value] : annotations)
    if (name == key) values.push_back(value);
  return values;
}

std::vector<DocumentBlock> blocks_of(const std::string& document, const std::string& text) {
  BlockReader reader(document);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) reader.read(line);
  return reader.finish();
}

std::vector<DocumentBlock> document_blocks(const fs::path& root) {
  std::vector<fs::path> documents;
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  std::sort(documents.begin(), documents.end());
  documents.insert(documents.begin(), root / "README.md");
  std::vector<DocumentBlock> all;
  for (const fs::path& document : documents) {
    auto blocks = blocks_of(document.lexically_relative(root).string(), read_file(document));
    std::move(blocks.begin(), blocks.end(), std::back_inserter(all));
  }
  return all;
}

std::optional<fs::path> quoted_file(const DocumentBlock& block, const fs::path& root) {
  static const std::regex kNamed(R"(^(?://|#) ((?:[\w-]+/)+[\w.-]+)\n)");
  std::smatch match;
  if (!std::regex_search(block.text, match, kNamed)) return std::nullopt;
  const fs::path file = root / match[1].str();
  return fs::exists(file) ? std::optional(file) : std::nullopt;
}

bool is_quote(const DocumentBlock& block, const std::string& file_text) {
  const std::string file = without_spaces(file_text);
  std::string rest = without_spaces(std::string_view(block.text).substr(block.text.find('\n')));
  size_t at = 0;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(kEllipsis), rest.size());
    const std::string part = rest.substr(0, end);
    at = file.find(part, at);
    if (at == std::string::npos) return false;
    at += part.size();
    rest.erase(0, end == rest.size() ? end : end + kEllipsis.size());
  }
  return true;
}

std::string block_problem(const DocumentBlock& block, const fs::path& root) {
  constexpr std::array<std::string_view, 4> kKeys = {"skip", "full", "within", "printed by"};
  for (const auto& [key, value] : block.annotations) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      return fmt::format("no annotation '{}'; expected one of {}", key, fmt::join(kKeys, ", "));
    if (key == "full" ? !value.empty() : value.empty())
      return fmt::format("'{}' {}", key, key == "full" ? "takes no value" : "needs a value");
    if (key == "within" && value.find(kEllipsis) == std::string::npos)
      return "'within' needs a … in place of the block";
  }
  if (block.has("skip") || block.has("printed by")) return "";
  if (quoted_file(block, root)) return "";
  constexpr std::array<std::string_view, 6> kTested = {"sh",  "bash", "python",
                                                       "cpp", "toml", "json"};
  if (std::find(kTested.begin(), kTested.end(), block.language) != kTested.end()) return "";
  return fmt::format(
      "a block of '{}' is not tested; say with an annotation by which command it is printed "
      "(<!-- test: printed by: COMMAND -->) or why it is not tested (<!-- test: skip: REASON -->)",
      block.language);
}

}  // namespace tessera
