// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/pattern.h"

#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/tokenizer.h"
#include "inputs/tokenizers/unicode.h"
#include "inputs/tokenizers/unicode_properties.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLongestExpression = 1 << 16;
constexpr unsigned kMostNesting = 500;    // Parsing is recursive.
constexpr unsigned kMostStack = 1 << 21;  // Entries of about 50 bytes.
// Per beginning of a match, as in the library.
constexpr unsigned long kMostRetries = 10'000'000;
// A possessive repetition or a lookahead can inspect the whole text without a retry, which takes
// quadratic time. In a longer text, each beginning of a match is an attempt of its own, which takes
// about 0.3 us.
constexpr size_t kSearchedText = 1 << 16;
constexpr unsigned long kMostSearchRetries = 1 << 30;  // About 5 s.

// Match data of one thread, created once.
struct MatchSpace {
  MatchSpace() : region(onig_region_new()), limits(onig_new_match_param()) {
    if (region == nullptr || limits == nullptr) throw std::bad_alloc();
    onig_initialize_match_param(limits);
    onig_set_retry_limit_in_match_of_match_param(limits, kMostRetries);
    onig_set_retry_limit_in_search_of_match_param(limits, kMostSearchRetries);
    onig_set_match_stack_limit_size_of_match_param(limits, kMostStack);
  }
  ~MatchSpace() {
    onig_region_free(region, 1);
    onig_free_match_param(limits);
  }
  MatchSpace& operator=(MatchSpace&&) = delete;  // Neither copied nor moved.

  OnigRegion* region;
  OnigMatchParam* limits;
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

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string message_of(int code, OnigErrorInfo* info = nullptr) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> text;
  const int length = info == nullptr ? onig_error_code_to_str(text.data(), code)
                                     : onig_error_code_to_str(text.data(), code, info);
  return {reinterpret_cast<const char*>(text.data()), static_cast<size_t>(std::max(length, 0))};
}

// Returns whether an expression ends with a "+" that repeats something greedily, unlike those of
// "\+", "x*+" and "x{1,3}+". With calls, the end of the expression is not that of a match.
bool ends_with_repeat(std::string_view expression) {
  if (expression.size() < 2 || expression.back() != '+') return false;
  if (expression.find("\\g") != std::string_view::npos) return false;
  expression.remove_suffix(1);
  const char before = expression.back();
  if (before == '}') {
    const size_t open = expression.rfind('{');
    return open != std::string_view::npos && open >= 2 && expression[open - 2] == '\\' &&
           std::tolower(expression[open - 1]) == 'p';
  }
  return std::string_view("\\+*?(|").find(before) == std::string_view::npos;
}

// A compiled expression.
struct Pattern {
  Pattern(std::string given, std::string place)
      : expression(std::move(given)), where(std::move(place)) {
    if (expression.size() > kLongestExpression)
      fail("{}: a pattern of {} bytes is longer than the {} that are supported", where,
           expression.size(), kLongestExpression);
    has_search_anchor = expression.find("\\G") != std::string::npos;
    // At the end, x+ matches as possessive x++ does, which needs no memory for each repetition.
    const std::string source = expression + (ends_with_repeat(expression) ? "+" : "");
    static std::mutex mutex;  // Oniguruma compiles one expression at a time.
    const std::scoped_lock lock(mutex);
    OnigEncodingType* const encoding = unicode_encoding();
    onig_set_parse_depth_limit(kMostNesting);
    OnigErrorInfo info{};
    const int error = onig_new(&code, bytes_of(source), bytes_of(source) + source.size(),
                               ONIG_OPTION_NONE, encoding, ONIG_SYNTAX_DEFAULT, &info);
    if (error != ONIG_NORMAL)
      fail("{}: the pattern '{}' is not a regular expression: {}", where, expression,
           message_of(error, &info));
  }

  ~Pattern() { onig_free(code); }
  Pattern& operator=(Pattern&&) = delete;  // Neither copied nor moved.

  std::string expression;
  std::string where;
  bool has_search_anchor = false;  // \G matches where a search begins.
  regex_t* code = nullptr;
};

// Finds the matches in one text.
class Search {
 public:
  Search(const Pattern& pattern, std::string_view text)
      : pattern_(pattern),
        text_(text),
        deadline_(Clock::now() + std::chrono::seconds(10) +
                  std::chrono::microseconds(2 * static_cast<int64_t>(text.size()))) {}

  // Returns the first match that begins at or after `from`.
  std::optional<std::pair<size_t, size_t>> next(size_t from) {
    while (true) {
      const size_t left = text_.size() - from;
      const bool is_search = left <= kSearchedText || pattern_.has_search_anchor;
      const int found = is_search ? search(from) : match(from);
      look_at_clock(from);
      if (found >= 0) {
        const OnigRegion& region = *space().region;
        return std::pair(static_cast<size_t>(region.beg[0]), static_cast<size_t>(region.end[0]));
      }
      if (found != ONIG_MISMATCH)
        throw TextLimitError(
            fmt::format("{}: the pattern '{}' cannot be matched at byte {} of a text: {}",
                        pattern_.where, pattern_.expression, from, message_of(found)));
      if (is_search) return std::nullopt;
      from += static_cast<size_t>(character_at(text_, from).length);
    }
  }

 private:
  static MatchSpace& space() {
    thread_local MatchSpace space;
    return space;
  }

  int search(size_t from) const {
    const OnigUChar* const begin = bytes_of(text_);
    const OnigUChar* const end = begin + text_.size();
    return onig_search_with_param(pattern_.code, begin, end, begin + from, end, space().region,
                                  ONIG_OPTION_NONE, space().limits);
  }
  int match(size_t at) const {
    const OnigUChar* const begin = bytes_of(text_);
    return onig_match_with_param(pattern_.code, begin, begin + text_.size(), begin + at,
                                 space().region, ONIG_OPTION_NONE, space().limits);
  }

  // Checks the time: a hostile pattern can take quadratic time over a text.
  void look_at_clock(size_t from) const {
    if (Clock::now() > deadline_)
      throw TextLimitError(fmt::format(
          "{}: the pattern '{}' takes too long: it stopped after {} of {} bytes of a text",
          pattern_.where, pattern_.expression, from, text_.size()));
  }

  const Pattern& pattern_;
  std::string_view text_;
  Clock::time_point deadline_;
};

void find_matches(const Pattern& pattern, std::string_view whole,
                  const std::function<void(size_t, size_t)>& take) {
  const ValidUtf8 valid(whole);
  const std::string_view text = valid.text();
  Search search(pattern, text);
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

}  // namespace

Matcher pattern_matcher(const std::string& expression, const std::string& where) {
  const auto pattern = std::make_shared<const Pattern>(expression, where);
  return {
      fmt::format("pattern '{}'", expression),
      [pattern](std::string_view text, const auto& take) { find_matches(*pattern, text, take); }};
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
