// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/pattern.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/pcre2_internal.h"
#include "inputs/tokenizers/utf8.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLongestExpression = 1 << 16;
constexpr uint32_t kMostMatchSteps = 10'000'000;  // Of one match.
constexpr size_t kMostLooks = 10'000'000'000;     // At bytes, in the same.
constexpr size_t kJitStack = 16 << 20;            // Grows up to it.
constexpr uint32_t kMostHeap = 256 << 10;         // KiB, where there is no JIT.
constexpr size_t kWindow = 1024;                  // Bytes that compiled code sees at a time.
constexpr int64_t kAttemptsBetweenLooks = 1024;   // At the clock.

// What one thread needs to match: made once.
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

// Text with U+FFFD for each broken byte, and the way back from its offsets.
class MendedText {
 public:
  explicit MendedText(std::string_view text) : text_(text) {
    size_t at = 0;
    while (at < text.size()) {
      const Character character = character_at(text, at);
      if (!character.is_valid) break;
      at += static_cast<size_t>(character.length);
    }
    if (at < text.size()) mend(at);
  }

  std::string_view text() const { return breaks_.empty() ? text_ : std::string_view(mended_); }
  size_t original(size_t offset) const {
    if (breaks_.empty()) return offset;
    const auto before = std::lower_bound(breaks_.begin(), breaks_.end(), offset);
    return offset - 2 * static_cast<size_t>(before - breaks_.begin());
  }

 private:
  void mend(size_t from) {
    mended_ = std::string(text_.substr(0, from));
    for (size_t at = from; at < text_.size();) {
      const Character character = character_at(text_, at);
      if (!character.is_valid) breaks_.push_back(mended_.size());
      append_utf8(character.code, &mended_);
      at += static_cast<size_t>(character.length);
    }
  }

  std::string_view text_;
  std::string mended_;
  std::vector<size_t> breaks_;  // Where they stand in mended_, three bytes for one.
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

// The matches of one text. Compiled code does not count its steps well, so it sees a window of the
// text at a time, in which no pattern takes long. Where the end of the window would have a say, the
// interpreter, which counts, tries that place on the whole text.
class Pattern::Search {
 public:
  Search(const Compiled& compiled, std::string_view text)
      : compiled_(compiled),
        text_(text),
        deadline_(Clock::now() + std::chrono::seconds(10) +
                  std::chrono::microseconds(2 * static_cast<int64_t>(text.size()))) {}

  // The first match that begins at `from` or later.
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
    while ((text_[end] & 0xc0) == 0x80) --end;  // Whole characters.
    return end;
  }

  // A match that begins here, by the interpreter, in windows that grow until it ends within one. A
  // step may look at the whole window, so the larger it is the fewer are allowed.
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

  // No text needs long with a pattern that is meant well; a hostile one can be quadratic.
  void look_at_clock(size_t from) const {
    if (Clock::now() > deadline_)
      fail("{}: the pattern '{}' takes too long: {} of {} bytes of a text are matched",
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
  const std::string translated = pcre2_expression(expression, where);
  const Pcre2<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                      translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                      &error, &offset, context.get()));
  if (compiled_->code == nullptr)
    fail("{}: the pattern '{}' is no regular expression: {}", where, expression, message_of(error));
  pcre2_jit_compile(compiled_->code.get(),
                    PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);  // Where there is no JIT, slowly.
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

void Pattern::for_each_match(std::string_view whole,
                             const std::function<void(size_t, size_t)>& take) const {
  const MendedText mended(whole);
  const std::string_view text = mended.text();
  Search search(*compiled_, text);
  size_t from = 0;
  size_t last_end = std::string_view::npos;
  while (const auto match = search.next(from)) {
    const auto [begin, end] = *match;
    if (begin < end || begin != last_end) {
      take(mended.original(begin), mended.original(end));
      last_end = end;
    }
    from = end;
    if (begin == end && end == text.size()) return;
    if (begin == end) from += static_cast<size_t>(character_at(text, from).length);
  }
}

}  // namespace tessera
