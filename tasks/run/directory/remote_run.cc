// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/directory/remote_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/terminal.h"
#include "core/io/environment.h"
#include "core/io/http.h"
#include "core/io/json.h"
#include "core/io/storage/storage.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/directory/run_directory.h"
#include "tasks/run/run_setting.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLeaseSeconds = 300;
constexpr std::chrono::seconds kRenewal{60};
constexpr const char* kLeaseName = "run.lease";  // Local: the token of the lease.

// The time of a file that has not changed since it was downloaded.
fs::file_time_type downloaded() {
  return std::chrono::file_clock::from_sys(std::chrono::sys_seconds());
}

// Between looks for changes, in either direction.
std::chrono::seconds interval(RemoteRun::Access access) {
  const auto seconds =
      static_cast<int64_t>(environment_number("TESSERA_UPLOAD_SECONDS", 0, "seconds"));
  if (seconds > 0) return std::min(kRenewal, std::chrono::seconds(seconds));
  return access == RemoteRun::Access::kWrite ? kRenewal : std::chrono::seconds(5);
}

// Whether a file or an object with this name is copied.
bool is_copied(const fs::path& name) {
  for (const fs::path& part : name)
    if (part.empty() || part.is_absolute() || part.native().starts_with('.')) return false;
  return *name.begin() != "checkpoints" && name != "lock" && name != kLeaseName &&
         name != kRunUrlName;
}

// The place of the local files: readable, and different for each URL and host, since hosts may
// share the file system of the cache.
fs::path local_place(const std::string& url) {
  constexpr size_t kMost = 100;
  const std::string all = url + " " + host_name(), escaped = url_escaped(url);
  return cache_directory() / "runs" /
         fmt::format("{:08x}_{}", crc32c(std::as_bytes(std::span(all))),
                     escaped.substr(escaped.size() - std::min(kMost, escaped.size())));
}

std::string lease_text(const std::string& token) {
  return json_object({{"owner", fmt::format("process {} on {}", ::getpid(), host_name())},
                      {"token", token},
                      {"time", int64_t{std::time(nullptr)}}});
}

// Whether a lease that looks old is renewed within the time of two renewals: the clocks of hosts
// differ.
bool is_renewed(const ObjectInfo& lease) {
  std::this_thread::sleep_for(2 * interval(RemoteRun::Access::kWrite));
  const auto later = storage_of(lease.url).find(lease.url);
  return later && later->etag != lease.etag;
}

}  // namespace

RunLease::RunLease(const std::string& run_url, const std::string& known)
    : url_(run_url + "/lock"), token_(new_token()) {
  BaseStorage& storage = storage_of(url_);
  for (;;) {
    WriteCondition condition{.if_absent = true};
    if (const auto found = storage.find(url_)) {
      const Json held = parse_json(read_file(url_), url_);
      was_known_ = held.at("token").as_string() == known;
      const int64_t age = std::time(nullptr) - held.at("time").as_integer();
      if (!was_known_ && (age < kLeaseSeconds || is_renewed(*found)))
        fail(
            "{} is in use by {}; wait until that run ends, or give this run a different "
            "--job_log_dir. If it was killed, its lease ends in {} s, or when you remove {}",
            run_url, held.at("owner").as_string(), std::max<int64_t>(kLeaseSeconds - age, 0), url_);
      condition = {.if_match = found->etag};
    }
    if (storage.write(url_, lease_text(token_), condition, &etag_) == WriteResult::kWritten) break;
  }
  if (storage.write(url_, "", {.if_absent = true}, &etag_) == WriteResult::kConditionFailed) return;
  storage.write(url_, lease_text(token_), {}, &etag_);
  fmt::print(stderr,
             "note: {}: its store ignores the conditions of writes, so a second run there is not "
             "refused\n",
             run_url);
}

// The store may ignore conditions.
bool RunLease::is_held() const {
  const auto found = storage_of(url_).find(url_);
  return found && found->etag == etag_;
}

bool RunLease::renew() {
  return is_held() && storage_of(url_).write(url_, lease_text(token_), {.if_match = etag_},
                                             &etag_) == WriteResult::kWritten;
}

void RunLease::release() {
  if (is_held()) storage_of(url_).remove(url_);
}

RemoteRun::RemoteRun(std::string url, Access access, ProcessGroup& processes)
    : url_(std::move(url)), access_(access), is_first_(processes.is_first()) {
  while (url_.ends_with('/')) url_.pop_back();
  const std::string what = "the run's files";
  for (const std::string& other : processes.all_gather(url_, what))
    if (other != url_)
      fail("--job_log_dir={} in this process and {} in another; expected one URL", url_, other);
  const int leader = leader_of_host(processes);
  const std::vector<std::string> directories = processes.run_on_all(what, [&] {
    if (processes.rank() == leader) prepare();
    return directory_.string();
  });
  directory_ = directories[static_cast<size_t>(leader)];
  if (is_first_) thread_ = start_thread([this](const std::stop_token& stop) { work(stop); });
}

std::unique_ptr<RemoteRun> RemoteRun::reader(const fs::path& run) {
  if (!is_url(run)) return nullptr;
  ProcessGroup alone;
  auto remote = std::make_unique<RemoteRun>(run.string(), Access::kRead, alone);
  if (!is_run(remote->directory())) fail("{} has no run", run.string());
  return remote;
}

void RemoteRun::prepare() {
  const fs::path place = local_place(url_), name = fs::path(url_).filename();
  if (is_first_ && access_ == Access::kWrite) {
    directory_ = place / name;
    take_lease();
  } else {
    directory_ = own_.emplace(place).place() / name;
    fs::create_directory(directory_);
  }
  write_file_atomically(directory_ / kRunUrlName, url_);
  try {
    download();
    const std::string log = url_ + "/metrics.jsonl";
    if (lease_ && !fs::exists(directory_ / "metrics.jsonl") && path_exists(log))
      fail("{} is not in the store's list of objects, which is out of date; try again soon", log);
  } catch (...) {
    if (lease_ && !lease_->was_known()) lease_->release();
    throw;
  }
}

void RemoteRun::take_lease() {
  const fs::path token = directory_ / kLeaseName;
  fs::create_directories(directory_);
  try {
    const RunLock no_run_of_this_host(directory_);
  } catch (const Error& error) {
    throw Error(renamed(error.what(), directory_.string(), url_));
  }
  lease_.emplace(url_, fs::exists(token) ? read_file(token) : "");
  if (!lease_->was_known()) fs::remove_all(directory_);
  fs::create_directories(directory_);
  write_file_atomically(token, lease_->token());
}

// Files that have changed here stay: those of a killed run, and what a reader of the run has made.
void RemoteRun::download() {
  for (const ObjectInfo& object : storage_of(url_).list(url_ + "/")) {
    const std::string name = object.url.substr(url_.size() + 1);
    const fs::path file = directory_ / name;
    if (!is_copied(name) || (fs::exists(file) && fs::last_write_time(file) != downloaded()) ||
        std::exchange(etags_[name], object.etag) == object.etag)
      continue;
    fs::create_directories(file.parent_path());
    download_file(object, file);
    fs::last_write_time(file, downloaded());
    known_[name] = {object.size, downloaded()};
  }
}

void RemoteRun::upload() {
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    const fs::path name = entry.path().lexically_relative(directory_);
    std::error_code gone;
    if (!is_copied(name) || !entry.is_regular_file(gone)) continue;
    const Stamp now{fs::file_size(entry, gone), fs::last_write_time(entry, gone)};
    if (gone || std::exchange(known_[name], now) == now) continue;
    const std::string to = url_ + "/" + name.string();
    try {
      storage_of(to).upload(to, entry.path());
    } catch (...) {
      known_.erase(name);
      throw;
    }
  }
}

void RemoteRun::work(const std::stop_token& stop) {
  bool has_said = false;
  while (!is_lost_ && !stops_within(stop, interval(access_))) try {
      if (lease_ && !lease_->renew()) {
        is_lost_ = true;
        fs::remove(directory_ / "lock");  // RunGuard notices, and ends the run.
        continue;
      }
      if (!lease_) download();
      upload();
      has_said = false;
    } catch (const std::exception& error) {
      if (!std::exchange(has_said, true))
        fmt::print(stderr, "note: {}: its files cannot be copied now, which is tried again: {}\n",
                   url_, error_text(error));
    }
}

void RemoteRun::finish() {
  thread_ = {};  // Stops and joins it.
  if (!is_first_ || is_lost_) return;
  try {
    upload();
  } catch (const std::exception& error) {
    has_failed_ = true;
    throw Error(fmt::format("the last files of {} are only in {}: {}", url_, directory_.string(),
                            error_text(error)));
  }
}

RemoteRun::~RemoteRun() {
  try {
    if (!has_failed_) finish();
    if (lease_ && !is_lost_ && !has_failed_) {
      lease_->release();
      fs::remove_all(directory_.parent_path());
    }
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  if (has_failed_ && own_) own_->release();
}

}  // namespace tessera
