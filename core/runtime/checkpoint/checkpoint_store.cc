// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ranges>
#include <set>
#include <thread>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/io/file.h"
#include "core/io/storage/storage.h"
#include "core/runtime/checkpoint/checkpoint_table.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr size_t kDigits = 10;

// The step of "step_0000000120"; nullopt for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  if (name.size() != kPrefix.size() + kDigits || !name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  for (char c : name.substr(kPrefix.size())) {
    if (c < '0' || c > '9') return std::nullopt;
    step = 10 * step + (c - '0');
  }
  return step;
}

// The reports of processes, by write_shard.
std::vector<ShardBytes> parse_written(const std::vector<std::string>& written) {
  std::vector<ShardBytes> shards(written.size());
  for (size_t i = 0; i < shards.size(); ++i)
    unpack(written[i], shards[i].file, shards[i].table, shards[i].arrays);
  return shards;
}

// Waits for shards: on network file systems a host may see another host's file seconds later.
void wait_for_shards(const fs::path& place, const std::vector<ShardBytes>& shards) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto wait_for_file = [&](const fs::path& file, int64_t bytes, int64_t host) {
    std::error_code error;
    while (static_cast<int64_t>(fs::file_size(file, error)) != bytes) {
      if (std::chrono::steady_clock::now() > deadline)
        fail(
            "{}: process {} wrote {} bytes there, which process 0 does not see; is the directory "
            "shared by all hosts?",
            file.string(), host, bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  for (int64_t host = 0; host < std::ssize(shards); ++host) {
    const ShardBytes& shard = shards[static_cast<size_t>(host)];
    wait_for_file(place / checkpoint_shard_name(host), shard.file, host);
    wait_for_file(place / checkpoint_table_name(host), shard.table, host);
  }
}

// A step that --checkpoint=auto-fallback has set aside has its index table by this name.
std::string aside_table() { return fmt::format("damaged_{}", kCheckpointIndexTableName); }

// Returns the folders of these objects, and whether they have an object of one of these names,
// which is looked for: a list may be older than the last object.
std::map<fs::path, bool> folders_with(const std::vector<std::string>& names,
                                      const std::vector<ObjectInfo>& objects) {
  std::map<fs::path, bool> folders;
  for (const fs::path object : objects | std::views::transform(&ObjectInfo::url))
    folders[object.parent_path()] |= std::ranges::count(names, object.filename().string()) > 0;
  for (auto& [folder, has_one] : folders)
    for (const std::string& name : names) has_one = has_one || path_exists(folder / name);
  return folders;
}

std::vector<int64_t> steps_in_store(const std::string& url) {
  std::vector<int64_t> steps;
  for (const auto& [folder, is_whole] :
       folders_with({kCheckpointIndexTableName}, storage_of(url).list(url + "/")))
    if (const auto step = step_of(folder.lexically_relative(url).string()); step && is_whole)
      steps.push_back(*step);
  return steps;
}

// Removes the index table first: a partly removed checkpoint is never listed.
void remove_objects(const fs::path& step_url) {
  BaseStorage& storage = storage_of(step_url.native());
  storage.remove(step_url / kCheckpointIndexTableName);
  for (const ObjectInfo& object : storage.list(step_url.string() + "/")) storage.remove(object.url);
}

std::string write_shard(const fs::path& place, const CheckpointInfo& info,
                        const std::vector<CheckpointArray>& arrays, const ProcessGroup& processes,
                        const std::function<void()>& on_read) {
  const ShardBytes shard =
      write_checkpoint_shard(place, info, arrays, {processes.rank(), processes.size()}, on_read);
  return pack(shard.file, shard.table, shard.arrays);
}

}  // namespace

std::vector<int64_t> steps_to_remove(const std::vector<int64_t>& steps,
                                     const RetentionPolicy& policy,
                                     const std::map<int64_t, double>& metrics) {
  if (policy.newest <= 0) return {};
  std::set<int64_t> kept;
  for (size_t i = 0; i < steps.size(); ++i)
    if (static_cast<int64_t>(steps.size() - i) <= policy.newest) kept.insert(steps[i]);
  std::optional<int64_t> best;
  for (int64_t step : steps) {
    if (policy.every_steps > 0 && step % policy.every_steps == 0) kept.insert(step);
    const auto metric = metrics.find(step);
    if (metric == metrics.end() || !std::isfinite(metric->second)) continue;
    if (!best || metric->second < metrics.at(*best)) best = step;
  }
  if (policy.best && best) kept.insert(*best);
  std::vector<int64_t> removed;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(removed),
               [&](int64_t step) { return !kept.contains(step); });
  return removed;
}

fs::path place_of_run(const fs::path& directory) {
  const fs::path url = directory / kRunUrlName;
  return !is_url(directory) && fs::exists(url) ? fs::path(read_file(url)) : directory;
}

CheckpointStore::CheckpointStore(fs::path directory)
    : directory_(place_of_run(directory.parent_path()) / directory.filename()),
      local_(std::move(directory)) {}

fs::path CheckpointStore::path_of(int64_t step) const {
  CHECK(step >= 0 && step < 10000000000, "step {}", step);
  return directory_ / fmt::format("{}{:010}", kPrefix, step);
}

std::vector<int64_t> CheckpointStore::steps() const {
  if (is_url(directory_)) return steps_in_store(directory_.string());
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const auto step = step_of(entry.path().filename().string());
    std::error_code why;
    if (step && entry.is_directory(why)) steps.push_back(*step);
    // Another process may have removed it just now.
    if (step && why && why != std::errc::no_such_file_or_directory)
      fail("{}: cannot read this checkpoint: {}; to continue without it, remove it",
           entry.path().string(), why.message());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail("{}: cannot list the checkpoints: {}", directory_.string(), error.message());
  std::ranges::sort(steps);
  return steps;
}

std::optional<int64_t> CheckpointStore::newest() const {
  const std::vector<int64_t> all = steps();
  if (all.empty()) return std::nullopt;
  return all.back();
}

Checkpoint CheckpointStore::open(int64_t step) const {
  const std::vector<int64_t> all = steps();
  const auto found = std::ranges::find(all, step);
  if (found == all.end())
    fail("{}: no checkpoint of step {}; available: {}", directory_.string(), step,
         all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", ")));
  const fs::path path = path_of(step);
  const std::string before =
      found == all.begin() ? "start from step 0" : fmt::format("resume from step {}", *(found - 1));
  const std::string remedy = fmt::format(
      "the checkpoint of step {} is damaged: to {}, remove {}, or train with "
      "--checkpoint=auto-fallback",
      step, before, path.string());
  Checkpoint checkpoint(path, remedy);
  if (const int64_t held = checkpoint.info().step; held != step) {
    const std::string name = path_of(held).filename().string();
    const std::string advice = std::ranges::find(all, held) != all.end()
                                   ? fmt::format("exchange its name with that of {}", name)
                                   : fmt::format("rename it to {}", name);
    throw DamagedCheckpoint(
        fmt::format("{}: the directory holds the checkpoint of step {}, so it was renamed or "
                    "exchanged with another; {}, or, to {}, remove it",
                    path.string(), held, advice, before));
  }
  return checkpoint;
}

fs::path CheckpointStore::set_aside(int64_t step) const {
  const fs::path path = path_of(step);
  if (is_url(directory_)) {
    write_object(path / aside_table(), read_file(path / kCheckpointIndexTableName));
    storage_of(path.native()).remove(path / kCheckpointIndexTableName);
    return path / aside_table();
  }
  fs::path aside = directory_ / ("damaged_" + path.filename().string());
  for (int i = 2; fs::exists(fs::symlink_status(aside)); ++i)
    aside = directory_ / fmt::format("damaged_{}_{}", path.filename().string(), i);
  std::error_code error;
  fs::rename(path, aside, error);
  if (error) fail("cannot rename {} to {}: {}", path.string(), aside.string(), error.message());
  sync_directory(directory_);
  return aside;
}

int64_t CheckpointStore::add(const CheckpointInfo& info, const std::vector<CheckpointArray>& arrays,
                             ProcessGroup& processes, const std::function<void()>& on_read) const {
  try {
    int64_t bytes = 0;
    for (const ShardBytes& shard : is_url(directory_)
                                       ? upload(info, arrays, processes, on_read)
                                       : add_locally(info, arrays, processes, on_read))
      bytes += shard.arrays;
    return bytes;
  } catch (const std::exception& error) {
    fail("cannot save the checkpoint of step {}: {}", info.step, error_text(error));
  }
}

std::vector<ShardBytes> CheckpointStore::add_locally(const CheckpointInfo& info,
                                                     const std::vector<CheckpointArray>& arrays,
                                                     ProcessGroup& processes,
                                                     const std::function<void()>& on_read) const {
  const std::string save = fmt::format("saving step {}", info.step);
  std::optional<NewDirectory> unfinished;  // Process 0 only; removed if anything below throws.
  // Only the name is broadcast: hosts may have mounted the directory in different places.
  const std::string name = processes.run_on_all(save + ", making its directory", [&] {
    if (!processes.is_first()) return std::string();
    return unfinished.emplace(path_of(info.step)).place().filename().string();
  })[0];
  const fs::path place = directory_ / name;
  const std::vector<ShardBytes> shards =
      parse_written(processes.run_on_all(save + ", writing shards", [&] {
        return write_shard(place, info, arrays, processes, on_read);
      }));
  processes.run_on_all(save + ", giving it its name", [&] {
    if (!processes.is_first()) return "";
    wait_for_shards(place, shards);
    write_checkpoint_index(place, info, processes.size());
    unfinished->finish();
    sync_directory(directory_);
    sync_directory(directory_ / "..");  // The first save created directory_ there.
    return "";
  });
  return shards;
}

std::vector<ShardBytes> CheckpointStore::upload(const CheckpointInfo& info,
                                                const std::vector<CheckpointArray>& arrays,
                                                ProcessGroup& processes,
                                                const std::function<void()>& on_read) const {
  const std::string save = fmt::format("saving step {}", info.step);
  const fs::path url = path_of(info.step);
  std::optional<NewDirectory> shard;  // Each process has one, which its next save removes, too.
  const auto send = [&](const std::string& name) {
    storage_of(url.native()).upload(url / name, shard->place() / name);
    fs::remove(shard->place() / name);
  };
  try {
    processes.run_on_all(save + ", preparing its place", [&] {
      shard.emplace(local_ / checkpoint_shard_name(processes.rank()));
      if (processes.is_first()) remove_objects(url);
      return "";
    });
    const std::vector<ShardBytes> shards =
        parse_written(processes.run_on_all(save + ", uploading shards", [&] {
          const std::string written = write_shard(shard->place(), info, arrays, processes, on_read);
          send(checkpoint_shard_name(processes.rank()));
          send(checkpoint_table_name(processes.rank()));
          return written;
        }));
    processes.run_on_all(save + ", uploading its index", [&] {
      if (!processes.is_first()) return "";
      write_checkpoint_index(shard->place(), info, processes.size(), url);
      send(kCheckpointIndexName);
      send(kCheckpointIndexTableName);
      return "";
    });
    return shards;
  } catch (...) {
    try {
      if (processes.is_first()) remove_objects(url);
    } catch (const Error&) {  // remove_unfinished() does it at the next start.
    }
    throw;
  }
}

void CheckpointStore::remove_unfinished() const {
  if (!is_url(directory_)) return remove_temporaries(directory_);
  BaseStorage& storage = storage_of(directory_.native());
  const std::vector<ObjectInfo> objects = storage.list(directory_.string() + "/");
  const auto whole = folders_with({kCheckpointIndexTableName, aside_table()}, objects);
  for (const ObjectInfo& object : objects)
    if (!whole.at(fs::path(object.url).parent_path())) storage.remove(object.url);
}

// Renames first, so that a partly removed checkpoint is never listed.
std::string CheckpointStore::remove(int64_t step) const {
  if (is_url(directory_)) {
    try {
      remove_objects(path_of(step));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  const fs::path doomed = temporary_beside(path_of(step), "old");
  std::error_code error;
  fs::remove_all(doomed, error);
  if (!error) fs::rename(path_of(step), doomed, error);
  if (!error) fs::remove_all(doomed, error);
  return error ? fmt::format("{}: {}", path_of(step).string(), error.message()) : "";
}

std::vector<int64_t> CheckpointStore::outdated(const RetentionPolicy& policy) const {
  return steps_to_remove(steps(), policy, metrics_);
}

}  // namespace tessera
