// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <new>
#include <system_error>

namespace tessera {
namespace {

thread_local std::vector<std::string> context_frames;
thread_local std::vector<std::string> prefixes;
// The frames that the last exception left, and how many of them are still on the stack.
thread_local std::string left_frames;
thread_local size_t frames_to_leave = 0;

std::string with_frames(std::string text) {
  std::string tail;  // Dotted frames, until the frame that they continue.
  for (auto frame = context_frames.rbegin(); frame != context_frames.rend(); ++frame) {
    tail.insert(0, *frame);
    const bool continues = frame->starts_with('.') && frame + 1 != context_frames.rend();
    if (continues) continue;
    // The message of another Error already contains the frames in which that was thrown.
    const std::string where = tail.empty() ? "" : fmt::format(" [in {}]", tail);
    if (text.find(where) == std::string::npos) text += where;
    tail.clear();
  }
  return text;
}

std::string with_context(std::string_view message) {
  const bool has_prefix = !prefixes.empty() && !prefixes.back().empty();
  return with_frames(has_prefix ? fmt::format("{}: {}", prefixes.back(), message)
                                : std::string(message));
}

// Returns the Levenshtein distance in which a swap of neighbours costs one (optimal string
// alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, substitute});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

// Returns how a user can fix a file system error, as "; …", or "".
std::string_view remedy(const std::error_code& code) {
  const auto is = [&](std::errc condition) { return code == condition; };
  if (is(std::errc::permission_denied) || is(std::errc::operation_not_permitted))
    return "; check the permissions of the path and of the folders above it";
  if (is(std::errc::read_only_file_system)) return "; give a path that can be written";
  if (is(std::errc::no_space_on_device)) return "; free space, or give a path on another disk";
  if (is(std::errc::too_many_symbolic_link_levels)) return "; its symbolic links form a loop";
  if (is(std::errc::filename_too_long)) return "; give a shorter name";
  if (is(std::errc::not_a_directory)) return "; a file exists where a directory is expected";
  std::error_code gone;
  const auto current = std::filesystem::current_path(gone);
  if (current.empty() && is(std::errc::no_such_file_or_directory))
    return "; the current directory has been removed: change to another one";
  return "";
}

// Returns the folder of a library error that the environment gives; or "".
std::string place_of_environment(const std::filesystem::filesystem_error& error) {
  const std::string_view what = error.what();
  if (error.path1().empty() && what.find("current path") != what.npos)
    return "the current directory";
  if (what.find("temp_directory_path") == what.npos) return "";
  for (const char* variable : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})
    if (const char* const value = std::getenv(variable))
      return fmt::format("{}={}, where temporary files would be", variable, value);
  return "/tmp";
}

struct BuiltByPair {
  template <typename T>
  requires std::same_as<T, int>
  constexpr BuiltByPair(T, std::source_location where = std::source_location::current())
      : file(where.file_name()) {}
  std::string_view file;
};

// Returns the folder of the C++ library's headers, "/usr/include/c++/12/": std::pair's constructor
// passes its own line to BuiltByPair.
std::string_view library_folder() {
  static const std::string_view folder = [] {
    const std::string_view header =
        std::pair<int, BuiltByPair>(0, 0).second.file;  // …/bits/stl_pair.h
    const size_t inner = header.rfind('/');
    return header.substr(0, header.rfind('/', inner == header.npos ? inner : inner - 1) + 1);
  }();
  return folder;
}

}  // namespace

Error::Error(std::string_view message) : std::runtime_error(with_context(message)) {
  left_frames.clear();
}

std::string error_text(const std::exception& error) {
  const std::string where = std::exchange(left_frames, {});
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  const auto* file_error = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  if (file_error == nullptr)
    return dynamic_cast<const Error*>(&error) != nullptr ? error.what() : error.what() + where;
  std::string text = place_of_environment(*file_error);
  if (text.empty()) {
    text = file_error->path1().string();
    if (!file_error->path2().empty()) text += " to " + file_error->path2().string();
  }
  if (!text.empty()) text += ": ";
  return text + file_error->code().message() + std::string(remedy(file_error->code()));
}

ErrorContext::ErrorContext(std::string where) {
  left_frames.clear();
  context_frames.push_back(std::move(where));
}

// Adds the frames for error_text, except to an Error, whose message has them.
ErrorContext::~ErrorContext() {
  if (std::uncaught_exceptions() > 0) {
    try {
      if (left_frames.empty() || frames_to_leave != context_frames.size())
        left_frames = with_frames("");
    } catch (const std::bad_alloc&) {
      left_frames.clear();
    }
    frames_to_leave = context_frames.size() - 1;
  }
  context_frames.pop_back();
}

ErrorPrefix::ErrorPrefix(std::string where) { prefixes.push_back(std::move(where)); }
ErrorPrefix::~ErrorPrefix() { prefixes.pop_back(); }

SourceSite SourceSite::current(std::source_location where) {
  const bool is_of_library = library_folder().size() > 1 &&
                             std::string_view(where.file_name()).starts_with(library_folder());
  return is_of_library ? SourceSite{} : SourceSite{where.file_name(), where.line()};
}

std::string SourceSite::text() const { return known() ? fmt::format("{}:{}", file, line) : ""; }

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.empty()) return "";
  // Less than the whole name, so that a one-letter name never matches another letter.
  const size_t tolerance = std::min(std::max<size_t>(2, name.size() / 3), name.size() - 1);
  std::string best;
  size_t best_distance = tolerance + 1;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) >= best_distance) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string best = nearest(name, candidates);
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s %s\n", file, line, condition, message.c_str());
  std::abort();
}

void check_finite(std::string_view owner, std::string_view field, double value) {
  if (!std::isfinite(static_cast<float>(value)))
    fail("{}: {} is {}, expected a finite number (at most 3.4e38)", owner, field, plain_nan(value));
}

void check_not_negative(std::string_view owner, std::string_view field, double value) {
  check_finite(owner, field, value);
  if (value < 0.0) fail("{}: {} is {}, expected 0 or more", owner, field, value);
}

void check_fraction(std::string_view owner, std::string_view field, double value) {
  if (!(value >= 0.0 && value < 1.0))
    fail("{}: {} is {}, expected 0 <= {} < 1", owner, field, plain_nan(value), field);
}

void check_at_least(std::string_view owner, std::string_view field, int64_t value, int64_t least) {
  if (value < least) fail("{}: {} is {}, expected at least {}", owner, field, value, least);
}

int64_t nearest_multiple(int64_t size, int64_t step) {
  return std::max<int64_t>(1, (size + step / 2) / step) * step;
}

double plain_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace tessera
