// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/run_directory.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/backend/cpu/thread_pool.h"
#include "core/base/error.h"
#include "core/graph/text.h"
#include "core/io/file.h"
#include "tasks/config/run_config.h"
#include "tasks/run_directory/graph_drawing.h"

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

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string holder(int descriptor) {
  char text[512];
  const ssize_t length = ::pread(descriptor, text, sizeof(text), 0);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : "a process unknown";
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

// A new name each time: a network file system may cache that a name does not exist.
std::string fresh_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool sees(const fs::path& path, const std::string& token, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::error_code error;
    if (fs::exists(path, error) && read_file(path) == token) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

std::unique_ptr<RunLock> take_run_directory(const fs::path& directory, Earlier earlier) {
  fs::create_directories(directory);
  auto lock = std::make_unique<RunLock>(directory);
  if (earlier == Earlier::kSetAside) set_aside(directory);
  return lock;
}

RunLock::RunLock(const std::filesystem::path& run_directory) {
  const std::filesystem::path path = run_directory / "lock";
  descriptor_ = open_own_file(path);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string who = holder(descriptor_);
    ::close(descriptor_);
    if (error != EWOULDBLOCK) fail("{}: cannot lock: {}", path.string(), std::strerror(error));
    fail(
        "{} is being written by {}; wait for it to end, or give this run a --job_log_dir of its "
        "own",
        run_directory.string(), who);
  }
  // Only for the message above: the lock is the kernel's, so a stale name is harmless.
  const std::string who = fmt::format("process {} on {}", ::getpid(), host_name());
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::write(descriptor_, who.data(), who.size()) != static_cast<ssize_t>(who.size())) {
    const std::string why = std::strerror(errno);
    ::close(descriptor_);
    fail("{}: cannot write: {}", path.string(), why);
  }
  remove_temporaries(run_directory);
}

RunLock::~RunLock() { ::close(descriptor_); }

void check_shared(const fs::path& directory, ProcessGroup& processes,
                  std::chrono::milliseconds patience) {
  if (processes.size() == 1) return;
  std::optional<Token> token;
  const auto path_of = [&](const std::string& text) {
    return directory / fmt::format(".shared_{}", text);
  };
  const std::string text = processes.run_on_all("the run's directory", [&] {
    if (!processes.is_first()) return std::string();
    const std::string fresh = fresh_token();
    token.emplace(path_of(fresh), fresh);
    return fresh;
  })[0];
  const std::string seen = sees(path_of(text), text, patience) ? "yes" : "";
  const std::vector<std::string> answers =
      processes.all_gather(seen, "whether the run's directory is shared");
  std::vector<std::string> blind;
  for (size_t rank = 0; rank < answers.size(); ++rank)
    if (answers[rank].empty()) blind.push_back(processes.name(static_cast<int>(rank)));
  if (blind.empty()) return;
  fail(
      "{} is not shared: {} {} not see what {} wrote there; give --job_log_dir on a file system "
      "that all hosts have mounted, under the same path on each",
      directory.string(), fmt::join(blind, ", "), blind.size() == 1 ? "does" : "do",
      processes.name(0));
}

bool writes_run(RunMode mode) { return mode == RunMode::kTrain || mode == RunMode::kImport; }

std::unique_ptr<RunLock> lock_run(const RunOptions& options, const ProcessGroup& processes) {
  if (!writes_run(options.mode) || options.dry_run || !processes.is_first()) return nullptr;
  return take_run_directory(options.job_log_dir,
                            options.restart ? Earlier::kSetAside : Earlier::kKeep);
}

std::string prepare_run(const ExperimentConfig& config, const RunOptions& options,
                        ProcessGroup& processes) {
  if (!writes_run(options.mode)) return "";
  if (!options.dry_run) check_shared(options.job_log_dir, processes);
  std::string text;
  if (processes.is_first())
    text = prepare_config(
        options.job_log_dir, options.experiment, options.site, config, options.overrides,
        {.change = options.allow_config_change ? ConfigChange::kAllow : ConfigChange::kRefuse,
         .starts_over = options.restart,
         .writes = !options.dry_run});
  return processes.broadcast(text, "the configuration");
}

std::function<void(std::string_view, const Graph&)> graph_dumper(const RunOptions& options,
                                                                 const ProcessGroup& processes) {
  if (options.dump_graph.empty() || !processes.is_first()) return nullptr;
  return [&options, drawing = std::shared_ptr<GraphDrawing>()](std::string_view stage,
                                                               const Graph& graph) mutable {
    if (stage != options.dump_graph) return;
    std::filesystem::create_directories(options.job_log_dir);
    const std::filesystem::path file = options.job_log_dir / fmt::format("graph_{}", stage);
    write_file_atomically(file.string() + ".txt", graph_text(graph));
    drawing = std::make_shared<GraphDrawing>(graph, file);
    if (!drawing->note().empty()) fmt::print(stderr, "note: {}\n", drawing->note());
  };
}

int64_t devices_at_once(const RunOptions& options, const ProcessGroup& processes) {
  const int64_t usable = usable_processors();
  const int64_t threads = options.threads > 0 ? options.threads : usable;
  // Several processes share the processors; a single one may use all.
  const int64_t processors = processes.size() > 1 ? std::min(usable, threads) : usable;
  const int64_t of_a_device = std::max<int64_t>(1, threads / options.devices);
  return processes.size() * std::clamp<int64_t>(processors / of_a_device, 1, options.devices);
}

}  // namespace tessera
