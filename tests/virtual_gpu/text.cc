// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "tests/virtual_gpu/memory.h"

namespace tessera::virtual_gpu {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}

// Whether a directive ends with its line.
bool ends_with_line(std::string_view text) {
  const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
  for (const std::string_view name : {".loc", ".file", ".version", ".target", ".address_size"})
    if (word == name) return true;
  return false;
}

bool is_function(std::string_view text) {
  return text.find(".entry") != text.npos || text.find(".func") != text.npos;
}

}  // namespace

Statement Scanner::next() {
  position_ = std::min(text_.find_first_not_of(kSpaces, position_), text_.size());
  if (position_ == text_.size()) return {};
  const size_t begin = position_;
  const auto up_to = [&](Statement::Kind kind, size_t end, size_t skipped) {
    position_ = std::min(end + skipped, text_.size());
    return Statement{kind, trim(text_.substr(begin, end - begin))};
  };
  if (text_[begin] == '{') return up_to(Statement::kOpen, begin + 1, 0);
  if (text_[begin] == '}') return up_to(Statement::kClose, begin + 1, 0);
  if (text_[begin] == '.' && ends_with_line(text_.substr(begin))) {
    return up_to(Statement::kDirective, std::min(text_.find('\n', begin), text_.size()), 0);
  }
  if (text_.substr(begin).starts_with(".section")) {
    position_ = text_.find('{', begin) + 1;
    skip_braces();
    return next();
  }
  size_t word = begin;
  while (word < text_.size() && is_word(text_[word])) ++word;
  if (word > begin && word + 1 < text_.size() && text_[word] == ':' && text_[word + 1] != ':')
    return up_to(Statement::kLabel, word, 1);
  bool quoted = false;
  for (size_t at = begin; at < text_.size(); ++at) {
    const char c = text_[at];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == ';') return up_to(Statement::kStatement, at, 1);
    if (c == '{' && is_function(text_.substr(begin, at - begin)))
      return up_to(Statement::kHeader, at, 0);
  }
  throw Fault{"PTX: a statement without end: " + std::string(text_.substr(begin, 60))};
}

void Scanner::skip_braces() {
  for (int depth = 1; depth > 0 && position_ < text_.size(); ++position_) {
    if (text_[position_] == '{') ++depth;
    if (text_[position_] == '}') --depth;
  }
}

std::string without_comments(std::string_view text) {
  std::string result(text);
  size_t at = 0;
  while ((at = result.find('/', at)) != std::string::npos) {
    const char next = at + 1 < result.size() ? result[at + 1] : ' ';
    const bool path =
        std::count(result.begin() + static_cast<ptrdiff_t>(result.rfind('\n', at) + 1),
                   result.begin() + static_cast<ptrdiff_t>(at), '"') %
        2;
    if (path || (next != '/' && next != '*')) {
      ++at;
      continue;
    }
    size_t end = next == '/' ? result.find('\n', at) : result.find("*/", at + 2);
    end = end == std::string::npos ? result.size() : next == '/' ? end : end + 2;
    std::fill(result.begin() + static_cast<ptrdiff_t>(at),
              result.begin() + static_cast<ptrdiff_t>(end), ' ');
  }
  return result;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : separator;
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c != separator || (depth && at < text.size())) continue;
    if (const auto part = trim(text.substr(begin, at - begin)); !part.empty())
      parts.push_back(part);
    begin = at + 1;
  }
  return parts;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  while (!(text = trim(text)).empty()) {
    const size_t end = std::min(text.find_first_of(kSpaces), text.size());
    result.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return result;
}

uint64_t parse_number(std::string_view text) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.ends_with('U')) digits.remove_suffix(1);
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' &&
      std::string_view("xXfFdD").find(digits[1]) != digits.npos) {
    base = 16;
    digits.remove_prefix(2);
  }
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw Fault{fmt::format("PTX: '{}' is neither a declared name nor a number", text)};
  return negative ? 0 - value : value;
}

}  // namespace tessera::virtual_gpu
