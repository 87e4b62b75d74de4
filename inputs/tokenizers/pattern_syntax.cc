// SPDX-License-Identifier: Apache-2.0
// Oniguruma's dialect of regular expressions, said in PCRE2's. The differences that matter are in
// what \s, \w, \b and \h mean, and in sets within sets.
#include <cctype>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "inputs/tokenizers/pattern.h"

namespace tessera {
namespace {

// White_Space; PCRE2's \s has U+180E besides.
constexpr std::string_view kSpaceClass =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// With circled and squared letters, which are symbols to PCRE2.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{N}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kHex = "0-9a-fA-F";

class Translator {
 public:
  Translator(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        escape();
      } else if (in_set_) {
        set_character(c);
      } else if (c == '[') {
        open_set();
      } else {
        if (c == '(') check_group();
        if (c == '}') close_interval();
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail("{}: the pattern '{}' has {} at byte {}, which this library does not support", where_,
         text_, what, at_);
  }

  void open_set() {
    in_set_ = true;
    set_begin_ = at_;
    out_ += text_[at_++];
    if (at_ < text_.size() && text_[at_] == '^') out_ += text_[at_++];
    if (at_ < text_.size() && text_[at_] == ']') out_ += "\\]", ++at_;
  }

  void set_character(char c) {
    if (c == '[' && text_.substr(at_, 2) != "[:") refuse("a set within a set");
    if (text_.substr(at_, 2) == "&&") refuse("an intersection of sets ('&&')");
    if (c == '[') {  // [:alpha:]
      const size_t end = text_.find(":]", at_ + 2);
      if (end == std::string_view::npos) refuse("an unfinished class of characters");
      out_ += text_.substr(at_, end + 2 - at_);
      at_ = end + 2;
      return;
    }
    if (c == ']') in_set_ = false;
    out_ += c;
    ++at_;
  }

  void put_set(std::string_view members, bool is_negated) {
    out_ += is_negated ? "[^" : "[";
    out_ += members;
    out_ += ']';
  }

  void escape() {
    if (at_ + 1 >= text_.size()) refuse("a backslash at its end");
    const char c = text_[at_ + 1];
    switch (c) {
      case 's':
        in_set_ ? void(out_ += kSpaceClass) : put_set(kSpaceClass, false);
        break;
      case 'S':
        in_set_ ? void(out_ += kNotSpace) : put_set(kSpaceClass, true);
        break;
      case 'w':
        in_set_ ? void(out_ += kWord) : put_set(kWord, false);
        break;
      case 'h':
        in_set_ ? void(out_ += kHex) : put_set(kHex, false);
        break;
      case 'W':
      case 'H':
        if (in_set_) refuse(fmt::format("'\\{}' within a set", c));
        put_set(c == 'W' ? kWord : kHex, true);
        break;
      case 'b':
        in_set_ ? void(out_ += "\\x08") : word_edge("(?<!{0})(?={0})|(?<={0})(?!{0})");
        break;
      case 'B':
        word_edge("(?<!{0})(?!{0})|(?<={0})(?={0})");
        break;
      case 'u':
        hexadecimal();
        return;
      case 'G':
      case 'K':
      case 'C':
      case 'g':
      case 'k':
        refuse(fmt::format("'\\{}'", c));
      default:
        out_ += '\\';
        out_ += c;
    }
    at_ += 2;
  }

  void word_edge(fmt::format_string<std::string> form) {
    out_ += fmt::format("(?:{})", fmt::format(form, fmt::format("[{}]", kWord)));
  }

  // é
  void hexadecimal() {
    const std::string_view digits = text_.substr(at_ + 2, 4);
    for (const char digit : digits)
      if (std::isxdigit(static_cast<unsigned char>(digit)) == 0)
        refuse("'\\u' without four digits");
    if (digits.size() < 4) refuse("'\\u' without four digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  // (?m) means what (?s) does elsewhere, and conditions and calls are others.
  void check_group() const {
    if (text_.substr(at_, 2) == "(*") refuse("a verb '(*'");
    if (text_.substr(at_, 2) != "(?") return;
    for (size_t i = at_ + 2; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == 'm') refuse("the option 'm'");
      if (c == '(' || c == 'R' || c == '&' || c == 'P' || c == 'C') refuse("a condition or a call");
      if (c != 'i' && c != 'x' && c != '-') return;
    }
  }

  // x{1,3}+ repeats x{1,3} there; here it would not give back.
  void close_interval() {
    size_t open = out_.size();
    while (open > 0 &&
           (std::isdigit(static_cast<unsigned char>(out_[open - 1])) != 0 || out_[open - 1] == ','))
      --open;
    const bool is_interval = open > 0 && out_[open - 1] == '{' && open < out_.size();
    if (is_interval && at_ + 1 < text_.size() && text_[at_ + 1] == '+')
      refuse("'}+', which repeats a repetition");
  }

  std::string_view text_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  size_t set_begin_ = 0;
  bool in_set_ = false;
};

}  // namespace

std::string pcre2_expression(const std::string& expression, const std::string& where) {
  return Translator(expression, where).run();
}

}  // namespace tessera
