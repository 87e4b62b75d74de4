// SPDX-License-Identifier: Apache-2.0
// A run whose directory is a URL of an object store. It has a local copy, into which its files are
// downloaded, except checkpoints (CheckpointStore), and from which process 0 uploads what changes.
// A run that writes holds a lease, the object <url>/lock: the lock of RunLock excludes only
// processes of one host.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "core/io/file.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// The lease of a run's single writer. It is renewed each minute; if it has not been for five, the
// next run may take it.
class RunLease {
 public:
  // `known` is the token of the lease that a run with these local files held; if the store still
  // has that one, nobody else has written since. Error if another run holds the lease.
  RunLease(const std::string& run_url, const std::string& known);

  const std::string& token() const { return token_; }
  bool was_known() const { return was_known_; }
  bool renew();  // Returns whether this run still holds the lease.
  void release();

 private:
  bool is_held() const;

  std::string url_, token_, etag_;
  bool was_known_ = false;
};

class RemoteRun {
 public:
  enum class Access { kRead, kWrite };
  // A collective call. Error if the processes were given different URLs, or if another run holds
  // the lease. With kWrite the local files of a killed run are kept if they are the newest.
  RemoteRun(std::string url, Access access, ProcessGroup& processes);
  // For reading the run at a URL by a single process; null for a path. Error if there is no run.
  static std::unique_ptr<RemoteRun> reader(const std::filesystem::path& run);
  ~RemoteRun();  // As finish(); prints a failure that it has not thrown. Releases the lease.
  RemoteRun& operator=(RemoteRun&&) = delete;  // Neither copied nor moved.

  const std::filesystem::path& directory() const { return directory_; }
  const std::string& url() const { return url_; }
  // Uploads what has changed; Error if that fails. Call it when the run has ended.
  void finish();

 private:
  using Stamp = std::pair<int64_t, std::filesystem::file_time_type>;  // Size and time of change.

  void prepare();
  void take_lease();
  void download();
  void upload();
  void work(const std::stop_token& stop);  // Runs in the thread.

  std::string url_;
  Access access_;
  bool is_first_;
  std::filesystem::path directory_;
  std::optional<NewDirectory> own_;  // The directory of a reader.
  std::optional<RunLease> lease_;
  bool is_lost_ = false;                      // Another run has the lease.
  bool has_failed_ = false;                   // finish() has thrown.
  std::map<std::string, Stamp> known_;        // Files as they are in the store, by name,
  std::map<std::string, std::string> etags_;  // and the ETags of those that were downloaded.

  std::jthread thread_;  // In process 0.
};

}  // namespace tessera
