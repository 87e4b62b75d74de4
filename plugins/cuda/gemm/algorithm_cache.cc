// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/algorithm_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/terminal.h"
#include "core/io/file.h"
#include "core/io/file_lock.h"

namespace tessera::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFirstLine = "tessera cublaslt algorithms 1\n";
constexpr int64_t kMostBytes = 16 << 20;

std::string checksum_line(std::string_view bytes) {
  return fmt::format("crc32c {:08x}\n", crc32c(std::as_bytes(std::span(bytes))));
}

// Held while a process times and writes. The kernel releases it when the process ends.
class FileLock {
 public:
  explicit FileLock(const fs::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail("{}: {}", path.string(), std::generic_category().message(errno));
    lock_file(descriptor_, LockWait::kYes);  // Without locks the last one to write counts.
  }
  ~FileLock() { ::close(descriptor_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

std::map<std::string, AlgorithmWords> parsed(const std::string& text) {
  if (!text.starts_with(kFirstLine))
    fail("its first line is not '{}'", kFirstLine.substr(0, kFirstLine.size() - 1));
  const size_t end = text.rfind("crc32c ");
  if (end == std::string::npos ||
      text.substr(end) != checksum_line(std::string_view(text).substr(0, end)))
    fail("its checksum is wrong");
  std::map<std::string, AlgorithmWords> entries;
  std::istringstream lines(text.substr(kFirstLine.size(), end - kFirstLine.size()));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    AlgorithmWords algorithm;
    for (uint64_t& word : algorithm) words >> std::hex >> word;
    std::string key;
    if (!std::getline(words >> std::ws, key)) fail("it has the line '{}'", line);
    entries[key] = algorithm;
  }
  return entries;
}

}  // namespace

AlgorithmCache::AlgorithmCache(fs::path file, Note note)
    : file_(std::move(file)), note_(std::move(note)) {}

std::optional<AlgorithmWords> AlgorithmCache::find(const std::string& key, const Accepts& accepts,
                                                   const Choose& choose) {
  const std::lock_guard guard(mutex_);
  const auto known = [&]() -> std::optional<AlgorithmWords> {
    const auto found = entries_.find(key);
    if (found == entries_.end() || !accepts(found->second)) return std::nullopt;
    return found->second;
  };
  if (const auto found = known()) return found;
  std::unique_ptr<FileLock> lock;
  try {
    if (!file_.empty()) {
      fs::create_directories(file_.parent_path());
      lock = std::make_unique<FileLock>(file_.string() + ".lock");
      read();
    }
  } catch (const std::exception& error) {
    note(error.what());
  }
  if (const auto found = known()) return found;
  const std::optional<AlgorithmWords> chosen = choose();
  if (!chosen) return std::nullopt;
  entries_[key] = *chosen;
  try {
    if (lock) write();
  } catch (const std::exception& error) {
    note(error.what());
  }
  return chosen;
}

void AlgorithmCache::read() {
  if (!fs::exists(file_)) return;
  try {
    for (auto& [key, algorithm] : parsed(read_file(file_, kMostBytes)))
      entries_.try_emplace(key, algorithm);
  } catch (const std::exception& error) {
    note(fmt::format("{} is damaged: {}", file_.string(), error.what()));
  }
}

void AlgorithmCache::write() {
  std::string text(kFirstLine);
  for (const auto& [key, algorithm] : entries_) {
    for (const uint64_t word : algorithm) text += fmt::format("{:016x} ", word);
    text += key + '\n';
  }
  write_file_atomically(file_, text + checksum_line(text));
}

void AlgorithmCache::note(const std::string& why) {
  if (std::exchange(noted_, true)) return;
  note_(fmt::format("the cache of matrix products is not used, so they are timed again: {}", why));
}

void AlgorithmCache::note_on_standard_error(const std::string& text) {
  print_error(fmt::format("note: {}", text));
}

fs::path algorithm_cache_file() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "tessera" / "cublaslt_algorithms";
  if (const fs::path home = variable("HOME"); home.is_absolute())
    return home / ".cache" / "tessera" / "cublaslt_algorithms";
  return {};
}

AlgorithmCache& algorithm_cache() {
  static std::mutex mutex;
  static std::map<fs::path, std::unique_ptr<AlgorithmCache>> caches;
  const std::lock_guard lock(mutex);
  const fs::path file = algorithm_cache_file();
  std::unique_ptr<AlgorithmCache>& cache = caches[file];
  if (!cache) cache = std::make_unique<AlgorithmCache>(file);
  return *cache;
}

}  // namespace tessera::cuda
