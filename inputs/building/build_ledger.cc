// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/build_ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTermsName = "terms";
constexpr const char* kLedgerName = "ledger.jsonl";

fs::path folder_of(const fs::path& output) {
  const fs::path parent = output.has_parent_path() ? output.parent_path() : ".";
  return parent / fmt::format(".{}.parts", output.filename().string());
}

int64_t count_of(const Json& json, std::string_view name) {
  const int64_t count = json.at(name).as_integer();
  if (count < 0) fail("{}.{} is {}, expected 0 or more", json.where(), name, count);
  return count;
}

// The first line of the old terms that is not among the new ones, and the other way round.
std::string difference(const BuildTerms& before, const BuildTerms& now) {
  const auto missing = [](const BuildTerms& from, const BuildTerms& in) {
    const auto found = std::find_if(from.begin(), from.end(), [&](const std::string& line) {
      return std::find(in.begin(), in.end(), line) == in.end();
    });
    return found == from.end() ? std::string("nothing") : *found;
  };
  return fmt::format("it had '{}', now there is '{}'", missing(before, now), missing(now, before));
}

BuildTerms lines_of(const std::string& text) {
  BuildTerms lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string ledger_line(int64_t unit, const UnitProgress& progress) {
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
  line.add("broken", progress.left_out.broken.broken)
      .add("first_broken", progress.left_out.broken.first)
      .add("empty", progress.left_out.empty)
      .add("bytes", progress.bytes_on_disk)
      .add("done", int64_t{progress.is_done ? 1 : 0});
  return line.text();
}

std::pair<int64_t, UnitProgress> parse_ledger_line(std::string_view line,
                                                   const std::string& where) {
  const Json json = parse_json(line, where);
  UnitProgress progress;
  progress.position = {count_of(json, "input"),
                       {count_of(json, "document"), count_of(json, "offset")}};
  for (size_t split = 0; split < kNumSplits; ++split) {
    const std::string name = kSplitNames[split];
    progress.parts[split] = {count_of(json, name + "_ids"), count_of(json, name + "_lengths")};
  }
  progress.left_out = {{count_of(json, "broken"), json.at("first_broken").as_string()},
                       count_of(json, "empty")};
  progress.bytes_on_disk = count_of(json, "bytes");
  progress.is_done = count_of(json, "done") != 0;
  return {count_of(json, "unit"), progress};
}

BuildLedger::BuildLedger(const fs::path& output, int64_t vocab_size, const BuildTerms& terms)
    : folder_(folder_of(output)), vocab_size_(vocab_size) {
  std::error_code error;
  fs::create_directory(folder_, error);
  if (error) fail("{}: cannot create: {}", folder_.string(), error.message());
  lock(output);
  if (!take_up(terms)) begin(terms);
  ledger_ =
      ::open((folder_ / kLedgerName).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (ledger_ < 0)
    fail("{}: cannot open: {}", (folder_ / kLedgerName).string(), std::strerror(errno));
}

BuildLedger::~BuildLedger() {
  if (!is_removed_ && !has_records_) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  if (ledger_ >= 0) ::close(ledger_);
  if (lock_ >= 0) ::close(lock_);
}

void BuildLedger::lock(const fs::path& output) {
  lock_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail("{}: cannot open: {}", folder_.string(), std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(lock_);
  fail("{}: another process is building it; wait for it, or give another --output",
       output.string());
}

bool BuildLedger::take_up(const BuildTerms& terms) {
  if (!fs::exists(folder_ / kTermsName)) return false;
  const BuildTerms before = lines_of(read_file(folder_ / kTermsName));
  if (before != terms) {
    begun_anew_ = difference(before, terms);
    return false;
  }
  const fs::path path = folder_ / kLedgerName;
  if (!fs::exists(path)) return true;
  // A line cut short by a kill tells of nothing, and is cut off so that lines can be added.
  std::string text = read_file(path);
  text.resize(text.rfind('\n') + 1);
  fs::resize_file(path, text.size());
  for (const std::string& line : lines_of(text)) {
    auto [unit, progress] = parse_ledger_line(line, path.string());
    taken_up_[unit] = std::move(progress);
  }
  // A machine that went down may have lost what a disk said it had.
  std::erase_if(taken_up_, [&](const auto& one) { return !has_parts(one.first, one.second); });
  has_records_ = !taken_up_.empty();
  return true;
}

// The terms go first, so that whoever is killed here leaves nothing that could be gone on with.
void BuildLedger::clear() {
  fs::remove(folder_ / kTermsName);
  for (const auto& entry : fs::directory_iterator(folder_)) fs::remove_all(entry.path());
}

void BuildLedger::begin(const BuildTerms& terms) {
  clear();
  write_file_atomically(folder_ / kTermsName, fmt::format("{}\n", fmt::join(terms, "\n")));
}

bool BuildLedger::has_parts(int64_t unit, const UnitProgress& progress) const {
  for (size_t split = 0; split < kNumSplits; ++split)
    if (!part_is_there(part(unit, static_cast<Split>(split)), vocab_size_, progress.parts[split]))
      return false;
  return true;
}

std::optional<UnitProgress> BuildLedger::progress_of(int64_t unit) const {
  const auto found = taken_up_.find(unit);
  if (found == taken_up_.end()) return std::nullopt;
  return found->second;
}

fs::path BuildLedger::part(int64_t unit, Split split) const {
  return folder_ / fmt::format("{:06}.{}", unit, kSplitNames[split]);
}

void BuildLedger::record(int64_t unit, const UnitProgress& progress) {
  const std::string line = ledger_line(unit, progress) + "\n";
  const std::lock_guard hold(mutex_);
  has_records_ = true;
  const ssize_t written = ::write(ledger_, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size()) || ::fdatasync(ledger_) != 0)
    fail("{}: cannot write: {}", (folder_ / kLedgerName).string(),
         written < 0 ? std::strerror(errno) : "the disk is full");
}

void BuildLedger::remove() {
  is_removed_ = true;
  clear();
  fs::remove(folder_);
}

}  // namespace tessera
