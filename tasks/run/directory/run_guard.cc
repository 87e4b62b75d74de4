// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/directory/run_guard.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tessera {

namespace fs = std::filesystem;

RunGuard::RunGuard(fs::path directory, const RunLock* lock, std::string name)
    : directory_(std::move(directory)),
      name_(name.empty() ? directory_.string() : std::move(name)),
      held_(directory_),
      lock_(lock) {}

std::string RunGuard::shown(std::string text) const {
  return renamed(renamed(std::move(text), held().string(), name_), directory_.string(), name_);
}

RunGuard::Finding RunGuard::look(std::string_view damage) {
  what_.clear();
  finding_ = look_at_directory();
  if (finding_ == Finding::kStop) return finding_;
  if (lock_ != nullptr && !lock_->is_in(held())) {
    finding_ = Finding::kStop;
    what_ = fmt::format(
        "{}/lock was removed or replaced during the run, so another run may write to the directory",
        name_);
  } else if (!damage.empty() && finding_ == Finding::kNone) {
    // A log that is gone may be the first file of a directory that is being removed.
    finding_ = damage == "was truncated" ? Finding::kSaveAndStop : Finding::kStop;
    what_ = fmt::format("{}/metrics.jsonl {} during the run", name_, damage);
  }
  return finding_;
}

RunGuard::Finding RunGuard::look_at_directory() {
  struct stat ours {
  }, found{};
  if (::fstat(held_.descriptor(), &ours) != 0) return Finding::kNone;  // The file system is away.
  const auto is_ours = [&] { return found.st_dev == ours.st_dev && found.st_ino == ours.st_ino; };
  const bool is_there = ::stat(directory_.c_str(), &found) == 0;
  if (is_there ? is_ours() : errno != ENOENT && errno != ENOTDIR) return Finding::kNone;
  std::error_code error;
  const fs::path now = fs::read_symlink(held(), error);
  const bool is_moved = !error && ::stat(now.c_str(), &found) == 0 && is_ours();
  what_ = fmt::format(
      "{} was {} during the run{}", name_,
      is_moved ? "moved to " + now.string() : "removed, and with it its logs and checkpoints,",
      is_there ? "; another directory has its name, and nothing is written there" : "");
  return is_moved ? Finding::kSaveAndStop : Finding::kStop;
}

void RunGuard::expect_in_place() {
  if (look() != Finding::kNone) throw DirectoryLost(what_);
}

void RunGuard::leave(ProcessGroup& processes, int64_t step, const std::function<void()>& save) {
  const auto worst = static_cast<Finding>(
      processes.all_reduce_max(static_cast<int64_t>(finding_), "what happened to the directory"));
  std::string why;
  for (const std::string& each : processes.all_gather(what_, "what happened to the directory"))
    if (why.empty()) why = each;
  if (worst == Finding::kSaveAndStop) save();
  throw DirectoryLost(fmt::format(
      "{}. {}", why,
      worst == Finding::kSaveAndStop && step > 0
          ? fmt::format("Step {} is saved there; the same command with that --job_log_dir resumes",
                        step)
          : fmt::format("The run stops after step {} without saving", step)));
}

std::unique_ptr<RunGuard> guard_run(const RunSetting& setting, const RunLock* lock) {
  if (setting.dry_run) return nullptr;
  return std::make_unique<RunGuard>(setting.job_log_dir, lock, setting.name());
}

}  // namespace tessera
