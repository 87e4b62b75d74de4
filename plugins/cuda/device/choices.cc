// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/choices.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/terminal.h"
#include "core/io/file.h"

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFirstLine = "tessera kernel choices 1\n";
constexpr int64_t kMostBytes = 16 << 20;

std::string checksum_line(std::string_view bytes) {
  return fmt::format("crc32c {:08x}\n", crc32c(std::as_bytes(std::span(bytes))));
}

}  // namespace

std::string text_of(const Choices& choices) {
  std::string text(kFirstLine);
  for (const auto& [key, choice] : choices) text += fmt::format("{} {}\n", choice, key);
  return text + checksum_line(text);
}

Choices parsed_choices(const std::string& text) {
  if (!text.starts_with(kFirstLine))
    fail("its first line is not '{}'", kFirstLine.substr(0, kFirstLine.size() - 1));
  const size_t end = text.rfind("crc32c ");
  if (end == std::string::npos ||
      text.substr(end) != checksum_line(std::string_view(text).substr(0, end)))
    fail("its checksum is wrong");
  Choices choices;
  std::istringstream lines(text.substr(kFirstLine.size(), end - kFirstLine.size()));
  for (std::string choice, key; lines >> choice && std::getline(lines >> std::ws, key);)
    choices[key] = choice;
  return choices;
}

void note_on_standard_error(const std::string& text) { print_error(fmt::format("note: {}", text)); }

ChoiceCache::ChoiceCache(fs::path file, NoteChoice note)
    : file_(std::move(file)), note_(std::move(note)) {}

ChoiceCache::ChoiceCache(Context&) : ChoiceCache(choice_cache_file()) {}

std::optional<std::string> ChoiceCache::find(const std::string& key, const AcceptsChoice& accepts,
                                             const Choose& choose) {
  const std::lock_guard guard(mutex_);
  read();
  const auto found = entries_.find(key);
  if (found != entries_.end() && accepts(found->second)) return found->second;
  const std::optional<std::string> chosen = choose();
  if (!chosen) return std::nullopt;
  entries_[key] = *chosen;
  if (!file_.empty()) write();
  return chosen;
}

// Adds the entries of the file. Entries of this process take precedence.
void ChoiceCache::read() {
  try {
    if (fs::exists(file_)) entries_.merge(parsed_choices(read_file(file_, kMostBytes)));
  } catch (const std::exception& error) {
    note(fmt::format("{} is damaged: {}", file_.string(), error.what()));
  }
}

void ChoiceCache::write() try {
  fs::create_directories(file_.parent_path());
  write_file_atomically(file_, text_of(entries_));
} catch (const std::exception& error) {
  note(error.what());
}

void ChoiceCache::note(const std::string& why) {
  if (std::exchange(noted_, true)) return;
  note_(
      fmt::format("the cache of kernel choices is not used, so products are timed again: {}", why));
}

fs::path choice_cache_file() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "tessera" / "kernel_choices";
  if (const fs::path home = variable("HOME"); home.is_absolute())
    return home / ".cache" / "tessera" / "kernel_choices";
  return {};
}

std::string RunChoices::find(const std::string& where, const std::string& what,
                             const AcceptsChoice& accepts,
                             const std::function<std::string()>& choose) {
  const std::string key = fmt::format("{}, {}", where, what);
  const std::lock_guard guard(mutex_);
  const auto known = choices_.find(key);
  if (known != choices_.end() && accepts(known->second)) return known->second;
  const auto others = std::ranges::find_if(
      choices_, [&](const Choices::value_type& each) { return each.first.ends_with(", " + what); });
  if (others != choices_.end() && !std::exchange(noted_, true))
    note_(
        fmt::format("this run chose its kernels for {}; {}, so they are chosen again, and its "
                    "numbers may differ by rounding",
                    others->first.substr(0, others->first.size() - what.size() - 2),
                    known == choices_.end() ? "here is " + where : "the library refuses them"));
  return choices_[key] = choose();
}

SharedChoices::SharedChoices(Context&) {
  static std::mutex mutex;
  static auto* const shared = new std::weak_ptr<RunChoices>;
  const std::lock_guard lock(mutex);
  run = shared->lock();
  if (!run) *shared = run = std::make_shared<RunChoices>();
}

std::string RunChoices::share(const std::string& others) {
  const std::lock_guard guard(mutex_);
  try {
    if (!others.empty())
      for (auto& [key, choice] : parsed_choices(others)) choices_[key] = choice;
  } catch (const Error& error) {
    fail(
        "{}; restore the file, or remove it: kernels are then chosen again, and numbers may "
        "differ by rounding",
        error.what());
  }
  return text_of(choices_);
}

}  // namespace tessera::cuda
