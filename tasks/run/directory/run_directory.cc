// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/directory/run_directory.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "inputs/flat_tokens/text_input.h"
#include "tasks/run/directory/run_config.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAside = "before_restart_";

// Moves the files of the earlier run to a subdirectory; the lock file stays.
void set_aside(const fs::path& directory) {
  int number = 1;
  while (fs::exists(directory / fmt::format("{}{}", kAside, number))) ++number;
  std::vector<fs::path> written;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name != "lock" && !name.starts_with(kAside)) written.push_back(entry.path());
  }
  if (written.empty()) return;
  const fs::path aside = directory / fmt::format("{}{}", kAside, number);
  fs::create_directory(aside);
  for (const fs::path& path : written) fs::rename(path, aside / path.filename());
}

std::string holder(int descriptor) {
  char text[512];
  const ssize_t length = ::pread(descriptor, text, sizeof(text), 0);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : "an unknown process";
}

// Removes the token file in any case.
class Token {
 public:
  Token(const fs::path& path, const std::string& text) : path_(path) {
    write_file_atomically(path_, text);
  }
  ~Token() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

 private:
  fs::path path_;
};

bool sees(const fs::path& path, const std::string& token, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::error_code error;
    if (fs::exists(path, error) && read_file(path) == token) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

using MakeRun = std::function<std::unique_ptr<BaseRun>(const RunSetting&)>;

class DryRun final : public BaseRun {
 public:
  DryRun(RunSetting setting, ProcessGroup& processes, const MakeRun& make) {
    const int leader = leader_of_host(processes);
    if (processes.rank() == leader) scratch_.emplace("tessera_dry_run");
    // With --restart the run would not see what is in its directory.
    if (scratch_ && !setting.restart) link_snapshot(setting.job_log_dir);
    setting.input_directory = processes.all_gather(scratch_ ? scratch_->path().string() : "",
                                                   "the temporary directory of a dry run")[leader];
    run_ = make(setting);
  }
  int run() override { return run_->run(); }

 private:
  // A link, so that replacing the file replaces only the link.
  void link_snapshot(const fs::path& run_directory) const {
    const std::string_view frozen = kCorpusSnapshot.substr(kRunDirectory.size());
    if (fs::exists(run_directory / frozen))
      fs::create_symlink(fs::absolute(run_directory / frozen), scratch_->path() / frozen);
  }

  std::optional<ScratchDirectory> scratch_;
  std::unique_ptr<BaseRun> run_;
};

}  // namespace

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

int leader_of_host(const ProcessGroup& processes) {
  int leader = 0;
  while (processes.host(leader) != processes.host(processes.rank())) ++leader;
  return leader;
}

RunLock::RunLock(const std::filesystem::path& run_directory) {
  const std::filesystem::path path = run_directory / "lock";
  file_ = open_own_file(path);
  const LockResult locked = lock_file(file_.get(), LockWait::kNo);
  is_locked_ = locked == LockResult::kLocked;
  if (locked == LockResult::kHeldByAnother) {
    fail("{} is in use by {}; wait until that run ends, or give this run a different --job_log_dir",
         run_directory.string(), holder(file_.get()));
  }
  // For the message above, and for is_in(). The lock is the kernel's, so a stale name is harmless.
  owner_ = fmt::format("process {} on {}", ::getpid(), host_name());
  if (!is_locked_)
    fmt::print(stderr,
               "note: {}: its file system has no locks, so a second run in this directory is not "
               "refused; this run stops when it notices one. The last was of {}\n",
               path.string(), holder(file_.get()));
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::write(file_.get(), owner_.data(), owner_.size()) != static_cast<ssize_t>(owner_.size())) {
    fail("{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  remove_temporaries(run_directory);
}

bool RunLock::is_in(const std::filesystem::path& run_directory) const {
  struct stat ours {
  }, there{};
  if (::fstat(file_.get(), &ours) != 0) return true;  // Unknown.
  if (::stat((run_directory / "lock").c_str(), &there) != 0) return errno != ENOENT;
  return ours.st_dev == there.st_dev && ours.st_ino == there.st_ino &&
         (is_locked_ || holder(file_.get()) == owner_);
}

void check_shared(const fs::path& directory, ProcessGroup& processes,
                  std::chrono::milliseconds patience) {
  if (processes.size() == 1) return;
  std::optional<Token> token;
  const auto path_of = [&](const std::string& text) {
    return directory / fmt::format(".shared_{}", text);
  };
  const std::string text = processes.run_on_all("the run's directory", [&] {
    if (!processes.is_first()) return std::string();
    // A new name each time: a network file system may cache that a name does not exist.
    const std::string created = new_token();
    token.emplace(path_of(created), created);
    return created;
  })[0];
  const std::string seen = sees(path_of(text), text, patience) ? "yes" : "";
  const std::vector<std::string> answers =
      processes.all_gather(seen, "whether the run's directory is shared");
  std::vector<std::string> blind;
  for (size_t rank = 0; rank < answers.size(); ++rank)
    if (answers[rank].empty()) blind.push_back(processes.name(static_cast<int>(rank)));
  if (blind.empty()) return;
  fail(
      "{} is not shared: {} {} not see what {} wrote there; give a --job_log_dir on a file system "
      "that all hosts mount under the same path",
      directory.string(), fmt::join(blind, ", "), blind.size() == 1 ? "does" : "do",
      processes.name(0));
}

std::unique_ptr<RunLock> lock_run(const RunSetting& setting, const ProcessGroup& processes) {
  if (setting.dry_run || !processes.is_first()) return nullptr;
  fs::create_directories(setting.job_log_dir);
  auto lock = std::make_unique<RunLock>(setting.job_log_dir);
  if (setting.restart && setting.url.empty()) set_aside(setting.job_log_dir);
  if (setting.restart && is_run(setting.job_log_dir))
    fail(
        "--restart does not set aside the run in {}, because objects cannot be renamed; give "
        "another --job_log_dir, or remove that run (aws s3 rm --recursive)",
        setting.url);
  return lock;
}

std::string prepare_run(const ExperimentConfig& config, const RunSetting& setting,
                        ProcessGroup& processes) {
  if (!setting.dry_run && setting.url.empty()) check_shared(setting.job_log_dir, processes);
  return processes.broadcast(processes.is_first() ? prepare_config(config, setting) : "",
                             "the configuration");
}

ScratchDirectory::ScratchDirectory(std::string_view name) {
  std::string place = (fs::temp_directory_path() / fmt::format("{}_XXXXXX", name)).string();
  if (::mkdtemp(place.data()) == nullptr)
    fail("{}: cannot make a temporary directory (TMPDIR): {}", place, std::strerror(errno));
  path_ = place;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::unique_ptr<BaseRun> make_run(const RunSetting& setting, ProcessGroup& processes,
                                  const MakeRun& make) {
  if (setting.dry_run) return std::make_unique<DryRun>(setting, processes, make);
  RunSetting in_place = setting;
  in_place.input_directory = setting.job_log_dir;
  return make(in_place);
}

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
