// SPDX-License-Identifier: Apache-2.0
#include "core/io/lenient_json.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

namespace tessera {
namespace {

// Returns whether the whole token is a number that the type can represent (error: std::errc()), or
// cannot.
template <typename Number>
bool reads_as(std::string_view token, std::errc expected) {
  Number number{};
  const char* const end = token.data() + token.size();
  const auto [stop, error] = std::from_chars(token.data(), end, number);
  return error == expected && stop == end;
}

class Rewriter {
 public:
  Rewriter(std::string_view text, Surrogates surrogates) : text_(text), surrogates_(surrogates) {}

  std::optional<std::string> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"')
        copy_string();
      else if (c == '-' || std::isalnum(static_cast<unsigned char>(c)) != 0)
        copy_token();
      else
        copy(1);
    }
    if (!is_changed_) return std::nullopt;
    return std::move(out_);
  }

 private:
  void copy(size_t count) {
    out_ += text_.substr(at_, count);
    at_ = std::min(at_ + count, text_.size());
  }
  void change(std::string_view to, size_t count) {
    out_ += to;
    at_ += count;
    is_changed_ = true;
  }

  // Returns 0 if there is no escape of a code unit at `at`.
  unsigned code_unit(size_t at) const {
    const std::string_view digits = text_.substr(std::min(at, text_.size()), 6);
    unsigned unit = 0;
    if (digits.size() < 6 || !digits.starts_with("\\u")) return 0;
    const auto [end, error] = std::from_chars(digits.data() + 2, digits.data() + 6, unit, 16);
    return error == std::errc() && end == digits.data() + 6 ? unit : 0;
  }

  void copy_string() {
    copy(1);
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        copy(1);
        continue;
      }
      const unsigned unit = code_unit(at_);
      const unsigned next = code_unit(at_ + 6);
      const bool is_high = unit >= 0xd800 && unit < 0xdc00;
      if (is_high && next >= 0xdc00 && next < 0xe000)
        copy(12);
      else if (unit >= 0xd800 && unit < 0xe000 && surrogates_ == Surrogates::kReplace)
        change(kNotJson, 6);
      else
        copy(2);
    }
    copy(1);
  }

  // Copies a number or a word.
  void copy_token() {
    size_t end = at_ + 1;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 ||
                                  text_[end] == '+' || text_[end] == '-' || text_[end] == '.'))
      ++end;
    const std::string_view token = text_.substr(at_, end - at_);
    const bool is_word = token == "NaN" || token == "Infinity" || token == "-Infinity";
    const bool is_integer = token.find_first_not_of("-0123456789") == std::string_view::npos;
    if (is_word || reads_as<double>(token, std::errc::result_out_of_range))
      change("\"" + std::string(kNotJson) + std::string(token) + "\"", token.size());
    else if (is_integer && !reads_as<int64_t>(token, {}) && !reads_as<uint64_t>(token, {}))
      change(std::string(token) + "e0", token.size());
    else
      copy(token.size());
  }

  std::string_view text_;
  Surrogates surrogates_;
  size_t at_ = 0;
  std::string out_;
  bool is_changed_ = false;
};

}  // namespace

std::optional<std::string> lenient_json(std::string_view text, Surrogates surrogates) {
  return Rewriter(text, surrogates).run();
}

}  // namespace tessera
