// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/build_journal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kStartsAtATime = 1 << 18;
constexpr int64_t kIdBytes = sizeof(int32_t), kLengthBytes = sizeof(uint64_t);

fs::path with_suffix(fs::path stem, const char* suffix) {
  stem += suffix;
  return stem;
}

// Opens or creates a file, truncated to `bytes`.
ByteFile open_at(const fs::path& path, int64_t bytes) {
  if (!fs::exists(path)) return ByteFile::create(path);
  std::error_code error;
  fs::resize_file(path, static_cast<uintmax_t>(bytes), error);
  if (error) fail("{}: cannot truncate to {} bytes: {}", path.string(), bytes, error.message());
  return ByteFile::open_to_write(path);
}

// Returns whether the files of a part have at least these sizes.
bool part_is_there(const fs::path& stem, const PartSizes& sizes) {
  if (sizes.ids == 0) return true;
  std::error_code error;
  const auto size_of = [&](const char* suffix) {
    const auto size = fs::file_size(with_suffix(stem, suffix), error);
    return error ? 0 : static_cast<int64_t>(size);
  };
  return size_of(".ids") >= sizes.ids * kIdBytes &&
         size_of(".lengths") >= sizes.lengths * kLengthBytes;
}

constexpr const char* kSettingsName = "settings";
constexpr const char* kJournalName = "journal.jsonl";

fs::path folder_of(const fs::path& output) {
  const fs::path parent = output.has_parent_path() ? output.parent_path() : ".";
  return parent / fmt::format(".{}.parts", output.filename().string());
}

int64_t count_of(const Json& json, std::string_view name) {
  const int64_t count = json.at(name).as_integer();
  if (count < 0) fail("{}.{} is {}, expected 0 or more", json.where(), name, count);
  return count;
}

// Returns the first lines in which two lists of settings differ.
std::string difference(const BuildSettings& before, const BuildSettings& now) {
  const auto missing = [](const BuildSettings& from, const BuildSettings& in) {
    const auto found = std::ranges::find_if(
        from, [&](const std::string& line) { return std::ranges::find(in, line) == in.end(); });
    return found == from.end() ? std::string("nothing") : *found;
  };
  return fmt::format("it had '{}', now '{}'", missing(before, now), missing(now, before));
}

BuildSettings lines_of(const std::string& text) {
  BuildSettings lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

PartWriter::PartWriter(fs::path stem, const PartSizes& sizes)
    : stem_(std::move(stem)), sizes_(sizes) {}

void PartWriter::append(const DocumentIds& documents) {
  if (documents.ids.empty()) return;
  if (!ids_) {
    ids_ = open_at(with_suffix(stem_, ".ids"), sizes_.ids * kIdBytes);
    lengths_ = open_at(with_suffix(stem_, ".lengths"), sizes_.lengths * kLengthBytes);
  }
  ids_->write_at(sizes_.ids * kIdBytes, std::as_bytes(std::span(documents.ids)));
  lengths_->write_at(sizes_.lengths * kLengthBytes, std::as_bytes(std::span(documents.lengths)));
  sizes_.ids += std::ssize(documents.ids);
  sizes_.lengths += std::ssize(documents.lengths);
  has_unsynced_ = true;
}

void PartWriter::sync() {
  if (!has_unsynced_) return;
  ids_->sync();
  lengths_->sync();
  has_unsynced_ = false;
}

void read_part(const fs::path& stem, const PartSizes& sizes, const TokenRange& range,
               const std::function<void(std::span<const int32_t> ids, bool continues)>& visit) {
  CHECK(range.begin >= 0 && range.end <= sizes.ids);
  if (range.size() <= 0) return;
  const auto damaged = [&] {
    fail("{}: changed or truncated since it was written; remove the folder and build again",
         stem.string());
  };
  if (!part_is_there(stem, sizes)) damaged();
  const ByteFile ids = ByteFile::open(with_suffix(stem, ".ids"));
  const ByteFile lengths = ByteFile::open(with_suffix(stem, ".lengths"));
  std::vector<uint64_t> some(kStartsAtATime);
  std::vector<int32_t> block;
  int64_t begin = 0;  // Start of the current document.
  for (int64_t at = 0; begin < range.end; at += kStartsAtATime) {
    if (at >= sizes.lengths) damaged();
    some.resize(static_cast<size_t>(std::min(kStartsAtATime, sizes.lengths - at)));
    lengths.read_at(at * kLengthBytes, std::as_writable_bytes(std::span(some)));
    for (const uint64_t length : some) {
      const auto size = static_cast<int64_t>(length & ~DocumentIds::kContinues);
      if (size > sizes.ids - begin) damaged();
      int64_t from = std::max(begin, range.begin);
      for (const int64_t end = std::min(begin + size, range.end); from < end;) {
        block.resize(static_cast<size_t>(std::min(kStartsAtATime, end - from)));
        ids.read_at(from * kIdBytes, std::as_writable_bytes(std::span(block)));
        visit(block, from > begin || (length & DocumentIds::kContinues) != 0);
        from += std::ssize(block);
      }
      begin += size;
    }
  }
}

std::string journal_line(int64_t unit, const UnitProgress& progress) {
  JsonLine line;
  line.add("unit", unit)
      .add("input", progress.position.input)
      .add("document", progress.position.within.document)
      .add("offset", progress.position.within.offset);
  for (int split = 0; split < kNumSplits; ++split) {
    const PartSizes& sizes = progress.parts[static_cast<size_t>(split)];
    const std::string name = kSplitNames[static_cast<size_t>(split)];
    line.add(name + "_ids", sizes.ids).add(name + "_lengths", sizes.lengths);
  }
  JsonLine reasons;
  for (const auto& [reason, count] : progress.skipped.corrupt.reasons) reasons.add(reason, count);
  line.add("broken", progress.skipped.corrupt.count)
      .add_raw("reasons", reasons.text())
      .add("first_broken", progress.skipped.corrupt.first)
      .add("empty", progress.skipped.empty)
      .add("bytes", progress.bytes_on_disk)
      .add("done", int64_t{progress.is_done ? 1 : 0});
  return line.text();
}

std::pair<int64_t, UnitProgress> parse_journal_line(std::string_view line,
                                                    const std::string& where) {
  const Json json = parse_json(line, where);
  UnitProgress progress;
  progress.position = {count_of(json, "input"),
                       {count_of(json, "document"), count_of(json, "offset")}};
  for (size_t split = 0; split < kNumSplits; ++split) {
    const std::string name = kSplitNames[split];
    progress.parts[split] = {count_of(json, name + "_ids"), count_of(json, name + "_lengths")};
  }
  progress.skipped = {{count_of(json, "broken"), json.at("first_broken").as_string()},
                      count_of(json, "empty")};
  for (const auto& [reason, count] : json.at("reasons").as_object())
    progress.skipped.corrupt.reasons[reason] = count.as_integer();
  progress.bytes_on_disk = count_of(json, "bytes");
  progress.is_done = count_of(json, "done") != 0;
  return {count_of(json, "unit"), progress};
}

BuildJournal::BuildJournal(const fs::path& output, const BuildSettings& settings)
    : folder_(folder_of(output)) {
  std::error_code error;
  fs::create_directory(folder_, error);
  if (error) fail("{}: cannot create: {}", folder_.string(), error.message());
  lock(output);
  if (!resume(settings)) {
    clear();
    write_file_atomically(folder_ / kSettingsName, fmt::format("{}\n", fmt::join(settings, "\n")));
  }
  journal_ = open_own_file(folder_ / kJournalName);
}

BuildJournal::~BuildJournal() {
  if (!is_removed_ && !has_records_) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
}

void BuildJournal::lock(const fs::path& output) {
  lock_.emplace(folder_);
  if (lock_file(lock_->descriptor(), LockWait::kNo) != LockResult::kHeldByAnother) return;
  fail("{}: another process is building this file; wait until it ends, or use another --output",
       output.string());
}

bool BuildJournal::resume(const BuildSettings& settings) {
  if (!fs::exists(folder_ / kSettingsName)) return false;
  const BuildSettings before = lines_of(read_file(folder_ / kSettingsName));
  if (before != settings) {
    restart_reason_ = difference(before, settings);
    return false;
  }
  const fs::path path = folder_ / kJournalName;
  if (!fs::exists(path)) return true;
  // Removes a partial last line, left by a killed process.
  std::string text = read_file(path);
  text.resize(text.rfind('\n') + 1);
  fs::resize_file(path, text.size());
  for (const std::string& line : lines_of(text)) {
    auto [unit, progress] = parse_journal_line(line, path.string());
    resumed_units_[unit] = std::move(progress);
  }
  // After a machine failure, files may be shorter than recorded.
  std::erase_if(resumed_units_, [&](const auto& one) { return !has_parts(one.first, one.second); });
  has_records_ = !resumed_units_.empty();
  return true;
}

// Removes settings first: without them, nothing can be resumed.
void BuildJournal::clear() {
  fs::remove(folder_ / kSettingsName);
  for (const auto& entry : fs::directory_iterator(folder_)) fs::remove_all(entry.path());
}

bool BuildJournal::has_parts(int64_t unit, const UnitProgress& progress) const {
  for (size_t split = 0; split < kNumSplits; ++split)
    if (!part_is_there(part(unit, static_cast<Split>(split)), progress.parts[split])) return false;
  return true;
}

std::optional<UnitProgress> BuildJournal::progress_of(int64_t unit) const {
  const auto found = resumed_units_.find(unit);
  if (found == resumed_units_.end()) return std::nullopt;
  return found->second;
}

fs::path BuildJournal::part(int64_t unit, Split split) const {
  return folder_ / fmt::format("{:06}.{}", unit, kSplitNames[split]);
}

void BuildJournal::record(int64_t unit, const UnitProgress& progress) {
  const std::string line = journal_line(unit, progress) + "\n";
  const std::lock_guard hold(mutex_);
  has_records_ = true;
  const ssize_t written = ::write(journal_.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size()) || ::fdatasync(journal_.get()) != 0)
    fail("{}: cannot write: {}", (folder_ / kJournalName).string(),
         written < 0 ? std::strerror(errno) : "the disk is full");
}

void BuildJournal::remove() {
  is_removed_ = true;
  clear();
  fs::remove(folder_);
}

}  // namespace tessera
