// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/token_build.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/seconds.h"
#include "core/base/terminal.h"
#include "inputs/flat_tokens/manifest.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string id_text(const std::optional<int32_t>& id) {
  return id ? fmt::format("{}", *id) : "none";
}

// Returns everything that determines the ids of the output. Compression, applied last, does not.
BuildSettings settings_of_build(const TokenBuild& build) {
  const ReadOptions& read = build.read;
  return {"format: 3",
          fmt::format("inputs: {}", build.from.fingerprint),
          fmt::format("tokenizer: {} {}", build.identity.fingerprint, build.identity.vocab_size),
          fmt::format("validation: {:g}{}", build.validation_fraction, build.from.validation_note),
          fmt::format("max_tokens: {}", build.max_tokens),
          fmt::format("end of texts: {}", id_text(build.document_end)),
          fmt::format("end of tokens: {}", id_text(build.end_of_tokens)),
          fmt::format("token_dtype: {}", enum_name(build.token_dtype)),
          fmt::format("text_field: {:?}{}", read.text_field, read.as_ids ? " of ids" : ""),
          fmt::format("separator: {:?}", read.separator),
          fmt::format("broken: {}", enum_name(read.corrupt_records)),
          fmt::format("utf8: {}", read.require_utf8),
          fmt::format("max_document_bytes: {}", read.max_document_bytes)};
}

// Removes the temporary file of a build killed while it wrote the output.
void remove_half_written(const fs::path& output) {
  const std::string prefix = fmt::format(".{}.new.", output.filename().string());
  const fs::path folder = output.has_parent_path() ? output.parent_path() : ".";
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(prefix)) fs::remove(entry.path());
}

// The tokens that can enter the output, in order: the training split unit by unit, then the
// validation split. Tokens beyond max_tokens are not counted, because their number depends on
// threads.
class Parts {
 public:
  Parts(const TokenBuild& build, const BuildJournal& journal,
        const std::vector<UnitProgress>& units)
      : build_(build), journal_(journal), units_(units) {
    for (size_t split = 0; split < kNumSplits; ++split) {
      for (const UnitProgress& unit : units) sizes_[split] += unit.parts[split].ids;
      if (build.max_tokens >= 0) sizes_[split] = std::min(sizes_[split], build.max_tokens);
    }
  }

  int64_t size(Split split) const { return sizes_[split]; }
  int64_t size() const { return size(kTrain) + size(kValidation); }
  // Whether there may be more tokens than counted.
  bool is_full(Split split) const { return size(split) == build_.max_tokens; }

  // Visits a range in order, in runs; `at` is the number of tokens before a run.
  template <typename Visit>
  void visit(const TokenRange& range, const Visit& visit) const {
    int64_t at = range.begin;
    int64_t part_begin = 0;
    for (const Split split : {kTrain, kValidation}) {
      int64_t room = size(split);
      for (size_t unit = 0; unit < units_.size(); ++unit) {
        const PartSizes& sizes = units_[unit].parts[split];
        const int64_t part_size = std::min(sizes.ids, room);
        const TokenRange wanted = {std::clamp<int64_t>(range.begin - part_begin, 0, part_size),
                                   std::clamp<int64_t>(range.end - part_begin, 0, part_size)};
        read_part(journal_.part(static_cast<int64_t>(unit), split), sizes, wanted,
                  [&](std::span<const int32_t> ids, bool continues) {
                    visit(at, ids, continues);
                    at += static_cast<int64_t>(ids.size());
                  });
        part_begin += part_size;
        room -= part_size;
      }
    }
  }

 private:
  const TokenBuild& build_;
  const BuildJournal& journal_;
  const std::vector<UnitProgress>& units_;
  std::array<int64_t, kNumSplits> sizes_{};
};

// Writes a range as a split; returns its number of documents.
int64_t write_split(const Parts& parts, const TokenRange& range, const std::string& name,
                    FlatTokensWriter* writer) {
  writer->begin_split(name);
  int64_t documents = 0;
  parts.visit(range, [&](int64_t, std::span<const int32_t> ids, bool continues) {
    if (continues && writer->split_tokens() > 0) {
      writer->extend_document(ids);
    } else {
      writer->add_document(ids);
      ++documents;
    }
  });
  return documents;
}

constexpr int64_t kLeastOfSplit = 2;  // One token and its label.

// Returns the beginning of the tail of all tokens: the first document start in the tail, if that
// leaves at least half of the fraction; else within a document.
int64_t tail_of(const Parts& parts, double fraction) {
  const int64_t size = parts.size();
  const auto cut = static_cast<int64_t>(static_cast<double>(size) * (1.0 - fraction));
  const int64_t last = size - std::max(kLeastOfSplit, (size - cut + 1) / 2);
  int64_t begin = -1;
  parts.visit({cut, last + 1}, [&](int64_t at, std::span<const int32_t>, bool continues) {
    if (begin < 0 && !continues) begin = at;
  });
  return begin >= 0 ? begin : cut;
}

// Returns whether a split has less than half its share of the tokens, or the other more than twice
// its share. A split limited by max_tokens is large enough.
bool is_too_small(const Parts& parts, Split split, double share) {
  if (parts.is_full(split)) return false;
  const auto all = static_cast<double>(parts.size());
  const auto size = static_cast<double>(parts.size(split));
  return parts.size(split) < kLeastOfSplit || size < 0.5 * share * all ||
         all - size > 2.0 * (1.0 - share) * all;
}

struct SplitRanges {
  std::array<TokenRange, kNumSplits> ranges;
  std::string validation_note;
  std::string note;
};

// Assigns tokens to splits. If whole documents give a share that is too far from the requested one,
// takes the tail of all tokens instead.
SplitRanges share_out(const TokenBuild& build, const Parts& parts) {
  const int64_t size = parts.size();
  const double fraction = build.validation_fraction;
  SplitRanges shared;
  shared.ranges = {TokenRange{0, parts.size(kTrain)}, TokenRange{parts.size(kTrain), size}};
  shared.validation_note = build.from.validation_note;
  const bool is_as_asked =
      !is_too_small(parts, kTrain, 1.0 - fraction) && !is_too_small(parts, kValidation, fraction);
  if (is_as_asked || !build.from.splits_by_fraction) return shared;
  const int64_t cut = tail_of(parts, fraction);
  if (cut < kLeastOfSplit || size - cut < kLeastOfSplit) {
    shared.ranges = {TokenRange{0, size}, TokenRange{size, size}};
    shared.validation_note = ", none held out";
    shared.note = fmt::format(
        "warning: {} has no validation split: {:g} % of {} tokens is too little; name files for it "
        "with --validation=PATH",
        build.output.string(), 100.0 * fraction, size);
  } else {
    shared.ranges = {TokenRange{0, cut}, TokenRange{cut, size}};
    shared.validation_note = fmt::format(", the last {} tokens held out", size - cut);
    shared.note = fmt::format(
        "{}: a validation split of whole documents would have {} of {} tokens, not about {:g} %, "
        "so it is the last {} of {} tokens instead",
        build.output.string(), parts.size(kValidation), size, 100.0 * fraction, size - cut, size);
  }
  return shared;
}

// Records skipped before the training split was full: how many follow depends on threads.
SkippedRecords skipped_before_limit(const TokenBuild& build,
                                    const std::vector<UnitProgress>& units) {
  SkippedRecords skipped;
  int64_t tokens = 0;
  for (const UnitProgress& unit : units) {
    tokens += unit.parts[kTrain].ids;
    if (build.max_tokens >= 0 && tokens >= build.max_tokens) break;
    skipped.add(unit.skipped);
  }
  return skipped;
}

TokenBuilt write_output(const TokenBuild& build, const Parts& parts, const SplitRanges& shared,
                        const std::string& manifest) {
  TokenBuilt built;
  built.description = build.from.files + shared.validation_note;
  FlatTokensWriter writer(
      build.output, build.identity,
      {.compression = build.compression, .source = built.description, .manifest = manifest});
  for (size_t split = 0; split < kNumSplits; ++split) {
    TokenRange range = shared.ranges[split];
    if (range.size() == 0) continue;
    if (build.max_tokens >= 0) range.end = std::min(range.end, range.begin + build.max_tokens);
    built.documents[split] = write_split(parts, range, kSplitNames[split], &writer);
    built.tokens[split] = writer.split_tokens();
  }
  writer.finish();
  return built;
}

// Throws an Error if the training split is empty; removes the journal, as a retry cannot succeed.
void check_not_empty(const TokenBuild& build, const Parts& parts, const SplitRanges& shared,
                     BuildJournal* journal) {
  if (shared.ranges[kTrain].size() > 0) return;
  const bool is_empty = parts.size(kValidation) == 0;
  const std::string& files = build.from.files;
  journal->remove();
  if (is_empty) fail("{}: no text, so no tokens to build a file of", files);
  fail("{}: all text is in the validation split; nothing is left to train on", files);
}

constexpr int kBarWidth = 24;
constexpr double kTerminalSeconds = 0.1;
constexpr double kLongestSeconds = 30.0;

}  // namespace

TokenBuilt build_tokens(const TokenBuild& build, BuildProgress& progress) {
  CHECK(build.threads >= 1);
  const BuildSettings settings = settings_of_build(build);
  BuildJournal journal(build.output, settings);
  remove_half_written(build.output);
  if (!journal.restart_reason().empty())
    progress.say(fmt::format("{}: an unfinished build had different settings ({}); starting over",
                             build.output.string(), journal.restart_reason()));
  if (journal.is_resumed())
    progress.say(fmt::format("{}: resuming an unfinished build", build.output.string()));
  TokenBuilt built;
  std::vector<UnitProgress> units;
  SplitRanges shared;
  std::optional<Parts> parts;
  const auto keep_progress = [&](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      if (!journal.has_records()) throw;
      fail("{}; progress is saved in {}; the same command resumes it", error.what(),
           journal.folder().string());
    }
  };
  keep_progress([&] {
    units = run_build_work(build, &journal, [&](const auto& status) { progress.show(status); });
    parts.emplace(build, journal, units);
    shared = share_out(build, *parts);
  });
  check_not_empty(build, *parts, shared, &journal);
  keep_progress([&] {
    const SkippedRecords skipped = skipped_before_limit(build, units);
    built = write_output(build, *parts, shared, manifest_of(build, settings, skipped));
  });
  for (const UnitProgress& unit : units) built.skipped.add(unit.skipped);
  if (!shared.note.empty()) progress.say(shared.note);
  journal.remove();
  return built;
}

std::string build_status_text(const BuildStatus& status, int width) {
  const double total = std::max<double>(1.0, static_cast<double>(status.total_bytes));
  const double share = std::clamp(static_cast<double>(status.bytes) / total, 0.0, 1.0);
  std::string text;
  if (width > 0) {
    const auto filled = static_cast<int>(share * width);
    text = fmt::format("[{:=<{}}{:{}}] ", "", filled, "", width - filled);
  }
  const bool is_large = status.total_bytes >= 1000 * 1000 * 1000;
  const double unit = is_large ? 1e9 : 1e6;
  const auto done = static_cast<double>(status.bytes - status.bytes_before);
  const double rate = status.seconds > 0.0 ? done / status.seconds : 0.0;
  text +=
      fmt::format("{:.0f} %  {:.2f} of {:.2f} {}  {:.1f} MB/s  {} tokens", 100.0 * share,
                  static_cast<double>(status.bytes) / unit, total / unit, is_large ? "GB" : "MB",
                  rate / 1e6, count_text(static_cast<double>(status.tokens)));
  if (rate > 0.0)
    text +=
        fmt::format("  {} left", duration_text((total - static_cast<double>(status.bytes)) / rate));
  return text;
}

BuildProgress::BuildProgress(std::ostream& out, Mode mode) : out_(out), mode_(mode) {
  // Prints nothing in the first second.
  if (mode == Mode::kPlain) next_ += std::chrono::seconds(1);
}

BuildProgress::~BuildProgress() { clear(); }

BuildProgress::Mode BuildProgress::detect(const std::ostream& out) {
  const bool is_terminal = (&out == &std::cerr && rewrites_lines(STDERR_FILENO)) ||
                           (&out == &std::cout && rewrites_lines(STDOUT_FILENO));
  return is_terminal ? Mode::kTerminal : Mode::kPlain;
}

void BuildProgress::clear() {
  if (is_line_open_) clear_line(out_);
  out_.flush();
  is_line_open_ = false;
}

void BuildProgress::show(const std::function<BuildStatus()>& status_now) {
  if (mode_ == Mode::kSilent || Clock::now() < next_) return;
  const double seconds = mode_ == Mode::kTerminal ? kTerminalSeconds : interval_seconds_;
  interval_seconds_ = std::min(2.0 * interval_seconds_, kLongestSeconds);
  next_ = in_seconds(seconds);
  BuildStatus status = status_now();
  status.seconds = seconds_since(begun_);
  if (mode_ == Mode::kTerminal) {
    clear_line(out_);
    out_ << build_status_text(status, kBarWidth) << std::flush;
    is_line_open_ = true;
  } else {
    out_ << build_status_text(status, 0) << std::endl;
  }
}

void BuildProgress::say(const std::string& line) {
  clear();
  if (mode_ != Mode::kSilent) out_ << line << std::endl;
}

}  // namespace tessera
