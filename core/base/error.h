// SPDX-License-Identifier: Apache-2.0
// `Error` for mistakes that a user can fix, CHECK for bugs in Tessera, context frames that add
// "where" to every Error thrown below them, the source lines that errors cite, and helpers of
// messages. Not for control flow.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace tessera {

// A mistake the user can fix: a bad flag, configuration, file or layout. `what()` is one line: what
// is wrong, what was given and what was expected, where, and how to fix it.
class Error : public std::runtime_error {
 public:
  // Appends this thread's context frames, innermost first: "message [in a.b]". Frames that the
  // message has already, because it is that of another Error, are not repeated.
  explicit Error(std::string_view message);
};

// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Returns the message of an exception for users. For std::filesystem errors it is "PATH: REASON;
// what to do", for std::bad_alloc "out of memory".
std::string error_text(const std::exception& error);

// While alive, Errors thrown on this thread end with "[in <where>]". Frames nest; one that begins
// with '.' continues the enclosing frame, so "lm" and ".ffn" give "in lm.ffn". An empty one adds
// nothing.
class ErrorContext {
 public:
  explicit ErrorContext(std::string where);
  ~ErrorContext();
  ErrorContext& operator=(ErrorContext&&) = delete;  // Neither copied nor moved.
};

// While alive, Errors thrown on this thread begin with "<where>: ". The innermost one applies.
class ErrorPrefix {
 public:
  explicit ErrorPrefix(std::string where);
  ~ErrorPrefix();
  ErrorPrefix& operator=(ErrorPrefix&&) = delete;  // Neither copied nor moved.
};

// A line of the user's source: where a field was set or an op was called.
struct SourceSite {
  const char* file = "";  // Static storage, from std::source_location.
  uint32_t line = 0;

  // Unknown for lines of the C++ library's headers. A constructor called from std::pair, say, gets
  // the library's line as its default argument instead of the user's.
  static SourceSite current(std::source_location where = std::source_location::current());
  bool known() const { return line != 0; }
  std::string text() const;  // "layers/feed_forward/feed_forward.cc:41"; "" if unknown.
};

// Returns the candidate nearest to `name` by edit distance, or "" if none could be a misspelling of
// it.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// Returns "; did you mean 'x'?" for the nearest candidate, or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// Prints and aborts; only CHECK calls it.
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);

// Check configured numbers. Each throws an Error such as "AdamW: learning_rate is -1, expected 0 or
// more". Real numbers must be finite in f32, in which a step computes.
void check_finite(std::string_view owner, std::string_view field, double value);
void check_not_negative(std::string_view owner, std::string_view field, double value);
// Requires 0 <= value < 1.
void check_fraction(std::string_view owner, std::string_view field, double value);
void check_at_least(std::string_view owner, std::string_view field, int64_t value, int64_t least);

// Returns the positive multiple of `step` nearest to `size`: the suggestion for a size that `step`
// does not divide.
int64_t nearest_multiple(int64_t size, int64_t step);

// Returns `value`, and any NaN without a sign bit: on x86, 0/0 is a NaN that prints as "-nan".
double plain_nan(double value);

}  // namespace tessera

// An invariant: a failure is a bug in Tessera, never the user's mistake.
// CHECK(a == b) or CHECK(a == b, "sizes {} and {}", a, b).
#define CHECK(condition, ...)   \
  (static_cast<bool>(condition) \
       ? void(0)                \
       : ::tessera::check_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)))
