// SPDX-License-Identifier: Apache-2.0
// How things go wrong: `Error` for what a user can mend, CHECK for our own bugs, and context
// frames that add "where" to every Error raised below them. Not for control flow.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace tessera {

// A mistake the user can mend: bad flag, config, file, layout. `what()` is one line that says what
// is wrong, what was got and expected, where, and how to mend it.
class Error : public std::runtime_error {
 public:
  // Appends the context frames that are open on this thread, innermost first: "message [in a.b]".
  explicit Error(std::string_view message);
};

// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// What a user reads of an exception. Those of the standard library are said as ours are: "PATH:
// REASON; what to do" for the file system's, "out of memory".
std::string error_text(const std::exception& error);

// While alive, Errors raised on this thread say "in <where>". Frames nest; one that begins with '.'
// continues the frame outside it, so that "lm" and ".ffn" read "in lm.ffn". An empty one is silent.
class ErrorContext {
 public:
  explicit ErrorContext(std::string where);
  ~ErrorContext();
  ErrorContext(const ErrorContext&) = delete;
  ErrorContext& operator=(const ErrorContext&) = delete;
};

// While alive, Errors raised on this thread begin "<where>: "; of nested ones the innermost counts.
class ErrorPrefix {
 public:
  explicit ErrorPrefix(std::string where);
  ~ErrorPrefix();
  ErrorPrefix(const ErrorPrefix&) = delete;
  ErrorPrefix& operator=(const ErrorPrefix&) = delete;
};

// The candidate nearest to `name` by edit distance, or "" if none is near enough to be a slip.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// "; did you mean 'x'?" for the nearest candidate, or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// Prints and aborts; only CHECK calls it.
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);

}  // namespace tessera

// An invariant of ours: a failure is a bug in Tessera, never the user's mistake.
// CHECK(a == b) or CHECK(a == b, "sizes {} and {}", a, b).
#define CHECK(condition, ...)   \
  (static_cast<bool>(condition) \
       ? void(0)                \
       : ::tessera::check_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)))
