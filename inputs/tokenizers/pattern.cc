// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {

// RAII handles of PCRE2.
template <typename T, void (*Free)(T*)>
struct Pcre2Free {
  void operator()(T* handle) const { Free(handle); }
};
template <typename T, void (*Free)(T*)>
using Pcre2 = std::unique_ptr<T, Pcre2Free<T, Free>>;

// Translation from Oniguruma's syntax to PCRE2's. They differ in the meaning of \s, \w, \b and \h,
// and in nested sets.

namespace {

// White_Space; PCRE2's \s also has U+180E.
constexpr std::string_view kSpaceClass =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaceClass =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Including circled and squared letters, which are symbols in PCRE2.
constexpr std::string_view kWordClass =
    R"(\p{L}\p{M}\p{N}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kHexClass = "0-9a-fA-F";

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
    fail("{}: the pattern '{}' has {} at byte {}, which is not supported", where_, text_, what,
         at_);
  }

  void open_set() {
    in_set_ = true;
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

  void put_class(std::string_view members) {
    out_ += in_set_ ? std::string(members) : fmt::format("[{}]", members);
  }

  void escape() {
    if (at_ + 1 >= text_.size()) refuse("a backslash at its end");
    const char c = text_[at_ + 1];
    if (c == 'u') return hexadecimal();
    if (std::string_view("GKCgk").find(c) != std::string_view::npos)
      refuse(fmt::format("'\\{}'", c));
    if (in_set_ && (c == 'W' || c == 'H')) refuse(fmt::format("'\\{}' within a set", c));
    if (c == 's')
      put_class(kSpaceClass);
    else if (c == 'S')
      put_class(kNotSpaceClass);
    else if (c == 'w')
      put_class(kWordClass);
    else if (c == 'h')
      put_class(kHexClass);
    else if (c == 'W' || c == 'H')
      out_ += fmt::format("[^{}]", c == 'W' ? kWordClass : kHexClass);
    else if (c == 'b' && in_set_)
      out_ += "\\x08";
    else if (c == 'b')
      word_edge("(?<!{0})(?={0})|(?<={0})(?!{0})");
    else if (c == 'B')
      word_edge("(?<!{0})(?!{0})|(?<={0})(?={0})");
    else
      out_ += {'\\', c};
    at_ += 2;
  }

  void word_edge(fmt::format_string<std::string> form) {
    out_ += fmt::format("(?:{})", fmt::format(form, fmt::format("[{}]", kWordClass)));
  }

  // \u00e9 is é.
  void hexadecimal() {
    const std::string_view digits = text_.substr(at_ + 2, 4);
    const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
    if (digits.size() < 4 || !std::all_of(digits.begin(), digits.end(), is_digit))
      refuse("'\\u' without four digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  // Oniguruma's (?m) is (?s) in PCRE2; conditions and callouts differ.
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

  // In Oniguruma, x{1,3}+ repeats x{1,3}; in PCRE2 it is possessive.
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
  bool in_set_ = false;
};

using Clock = std::chrono::steady_clock;

constexpr size_t kLongestExpression = 1 << 16;
constexpr uint32_t kMostMatchSteps = 10'000'000;  // Per match.
constexpr size_t kMostLooks = 10'000'000'000;     // Bytes inspected per match.
constexpr size_t kJitStack = 16 << 20;            // Maximum size.
constexpr uint32_t kMostHeap = 256 << 10;         // KiB, without JIT.
constexpr size_t kWindow = 1024;                  // Bytes per JIT match.
constexpr int64_t kAttemptsBetweenLooks = 1024;   // Match attempts between deadline checks.

// Per-thread match data, created once.
struct MatchSpace {
  MatchSpace() {
    pcre2_set_match_limit(context.get(), kMostMatchSteps);
    pcre2_set_heap_limit(context.get(), kMostHeap);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  Pcre2<pcre2_match_data, pcre2_match_data_free> data{pcre2_match_data_create(1, nullptr)};
  Pcre2<pcre2_match_context, pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Pcre2<pcre2_jit_stack, pcre2_jit_stack_free> stack{
      pcre2_jit_stack_create(32 << 10, kJitStack, nullptr)};
};

// Text with U+FFFD for each invalid byte, and the mapping of offsets back.
class ValidUtf8 {
 public:
  explicit ValidUtf8(std::string_view text) : text_(text) {
    if (const size_t valid = valid_prefix(text); valid < text.size()) replace_invalid(valid);
  }

  std::string_view text() const { return breaks_.empty() ? text_ : std::string_view(replaced_); }
  size_t original(size_t offset) const {
    if (breaks_.empty()) return offset;
    const auto before = std::lower_bound(breaks_.begin(), breaks_.end(), offset);
    return offset - 2 * static_cast<size_t>(before - breaks_.begin());
  }

 private:
  void replace_invalid(size_t from) {
    replaced_ = std::string(text_.substr(0, from));
    for (size_t at = from; at < text_.size();) {
      const Character character = character_at(text_, at);
      if (!character.is_valid) breaks_.push_back(replaced_.size());
      append_utf8(character.code, &replaced_);
      at += static_cast<size_t>(character.length);
    }
  }

  std::string_view text_;
  std::string replaced_;
  std::vector<size_t> breaks_;  // Positions in replaced_, where three bytes replace one.
};

std::string message_of(int code) {
  std::string text(256, '\0');
  const int length =
      pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(static_cast<size_t>(std::max(length, 0)));
  return text;
}

}  // namespace

struct Pattern::Compiled {
  std::string expression;
  std::string where;
  Pcre2<pcre2_code, pcre2_code_free> code;
};

// Finds the matches in one text. JIT code does not count its steps reliably, so it sees a window of
// the text at a time. If a match could depend on text after the window, the interpreter, which
// counts steps, tries that position on growing windows.
class Pattern::Search {
 public:
  Search(const Compiled& compiled, std::string_view text)
      : compiled_(compiled),
        text_(text),
        deadline_(Clock::now() + std::chrono::seconds(10) +
                  std::chrono::microseconds(2 * static_cast<int64_t>(text.size()))) {}

  // The first match that begins at or after `from`.
  std::optional<std::pair<size_t, size_t>> next(size_t from) {
    while (true) {
      const size_t end = end_of_window(from, kWindow);
      int found = match(from, end, end == text_.size() ? 0 : PCRE2_PARTIAL_HARD);
      size_t failed = end;  // No match begins before it.
      if (found == PCRE2_ERROR_PARTIAL) {
        const size_t begin = bounds()[0];
        failed = begin + (begin < text_.size() ? length_at(begin) : 1);
        found = match_counted(begin);
        look_at_clock(begin);
      }
      if (++attempts_ % kAttemptsBetweenLooks == 0) look_at_clock(from);
      if (found >= 0) return std::pair(bounds()[0], std::max(bounds()[0], bounds()[1]));
      if (found != PCRE2_ERROR_NOMATCH)
        fail("{}: the pattern '{}' cannot be matched at byte {} of a text: {}", compiled_.where,
             compiled_.expression, from, message_of(found));
      if (end == text_.size() && failed == end) return std::nullopt;
      from = failed;
    }
  }

 private:
  static MatchSpace& space() {
    thread_local MatchSpace space;
    return space;
  }
  static const PCRE2_SIZE* bounds() { return pcre2_get_ovector_pointer(space().data.get()); }

  size_t length_at(size_t at) const { return static_cast<size_t>(character_at(text_, at).length); }
  size_t end_of_window(size_t from, size_t length) const {
    if (text_.size() - from <= length) return text_.size();
    size_t end = from + length;
    while ((text_[end] & 0xc0) == 0x80) --end;  // At a character boundary.
    return end;
  }

  // Matches at `begin` with the interpreter, on windows that grow until the match ends inside one.
  // A step may inspect the whole window, so larger windows allow fewer steps.
  int match_counted(size_t begin) const {
    int found = PCRE2_ERROR_PARTIAL;
    for (size_t length = 4 * kWindow; found == PCRE2_ERROR_PARTIAL; length *= 4) {
      const size_t end = end_of_window(begin, length);
      const auto steps =
          static_cast<uint32_t>(std::min<size_t>(kMostMatchSteps, kMostLooks / length));
      pcre2_set_match_limit(space().context.get(), std::max<uint32_t>(steps, 100));
      found = match(begin, end,
                    PCRE2_ANCHORED | PCRE2_NO_JIT | (end == text_.size() ? 0 : PCRE2_PARTIAL_HARD));
    }
    pcre2_set_match_limit(space().context.get(), kMostMatchSteps);
    return found;
  }

  int match(size_t from, size_t end, uint32_t options) const {
    return pcre2_match(compiled_.code.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()), end, from,
                       options | PCRE2_NO_UTF_CHECK, space().data.get(), space().context.get());
  }

  // A hostile pattern can take quadratic time over a text.
  void look_at_clock(size_t from) const {
    if (Clock::now() > deadline_)
      fail("{}: the pattern '{}' takes too long: it stopped after {} of {} bytes of a text",
           compiled_.where, compiled_.expression, from, text_.size());
  }

  const Compiled& compiled_;
  std::string_view text_;
  Clock::time_point deadline_;
  int64_t attempts_ = 0;
};

Pattern::Pattern(const std::string& expression, const std::string& where)
    : compiled_(std::make_unique<Compiled>()) {
  if (expression.size() > kLongestExpression)
    fail("{}: a pattern of {} bytes is longer than the {} that are supported", where,
         expression.size(), kLongestExpression);
  compiled_->expression = expression;
  compiled_->where = where;
  const std::string translated = Translator(expression, where).run();
  const Pcre2<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                      translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                      &error, &offset, context.get()));
  if (compiled_->code == nullptr)
    fail("{}: the pattern '{}' is not a regular expression: {}", where, expression,
         message_of(error));
  pcre2_jit_compile(
      compiled_->code.get(),
      PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);  // Without JIT, matching is slower.
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

void Pattern::for_each_match(std::string_view whole,
                             const std::function<void(size_t, size_t)>& take) const {
  const ValidUtf8 valid(whole);
  const std::string_view text = valid.text();
  Search search(*compiled_, text);
  size_t from = 0;
  size_t last_end = std::string_view::npos;
  while (const auto match = search.next(from)) {
    const auto [begin, end] = *match;
    if (begin < end || begin != last_end) {
      take(valid.original(begin), valid.original(end));
      last_end = end;
    }
    from = end;
    if (begin == end && end == text.size()) return;
    if (begin == end) from += static_cast<size_t>(character_at(text, from).length);
  }
}

Matcher pattern_matcher(const std::string& expression, const std::string& where) {
  const auto pattern = std::make_shared<const Pattern>(expression, where);
  return {
      fmt::format("pattern '{}'", expression),
      [pattern](std::string_view text, const auto& take) { pattern->for_each_match(text, take); }};
}

Matcher literal_matcher(const Json& json) {
  const std::string& literal = json.as_string();
  if (literal.empty()) fail("{} is empty", json.where());
  return {fmt::format("text '{}'", literal), [literal](std::string_view text, const auto& take) {
            for (size_t at = text.find(literal); at != std::string_view::npos;
                 at = text.find(literal, at + literal.size()))
              take(at, at + literal.size());
          }};
}

Matcher make_matcher(const Json& pattern) {
  if (const Json* regex = pattern.find("Regex"))
    return pattern_matcher(regex->as_string(), regex->where());
  return literal_matcher(pattern.at("String"));
}

}  // namespace tessera
