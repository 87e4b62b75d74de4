// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/token_build.h"

#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "inputs/building/build_work.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string id_text(const std::optional<int32_t>& id) {
  return id ? fmt::format("{}", *id) : "none";
}

// All that decides the output's ids. Compression does not: it comes last.
BuildTerms terms_of(const TokenBuild& build) {
  const ReadOptions& read = build.read;
  return {"format: 1",
          fmt::format("inputs: {}", build.from.fingerprint),
          fmt::format("tokenizer: {} {}", build.identity.fingerprint, build.identity.vocab_size),
          fmt::format("validation: {:g} {}{}", build.validation_fraction, build.from.files,
                      build.from.held_out),
          fmt::format("max_tokens: {}", build.max_tokens),
          fmt::format("end of texts: {}", id_text(build.document_end)),
          fmt::format("end of tokens: {}", id_text(build.end_of_tokens)),
          fmt::format("text_field: {:?}", read.text_field),
          fmt::format("separator: {:?}", read.separator),
          fmt::format("broken: {}", enum_names(read.broken)[static_cast<size_t>(read.broken)].name),
          fmt::format("utf8: {}", read.require_utf8),
          fmt::format("max_document_bytes: {}", read.max_document_bytes)};
}

// Left by a build that was killed while it put the parts together.
void remove_half_written(const fs::path& output) {
  const std::string prefix = fmt::format(".{}.new.", output.filename().string());
  const fs::path folder = output.has_parent_path() ? output.parent_path() : ".";
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(prefix)) fs::remove(entry.path());
}

// The tokens that a build has made and that can enter its output, in one order: those for training,
// unit by unit, then those for validation. What there is beyond max_tokens depends on threads, so
// none of it is counted.
class Parts {
 public:
  Parts(const TokenBuild& build, const BuildLedger& ledger, const std::vector<UnitProgress>& units)
      : build_(build), ledger_(ledger), units_(units) {
    for (size_t split = 0; split < kNumSplits; ++split) {
      for (const UnitProgress& unit : units) sizes_[split] += unit.parts[split].ids;
      if (build.max_tokens >= 0) sizes_[split] = std::min(sizes_[split], build.max_tokens);
    }
  }

  int64_t size(Split split) const { return sizes_[split]; }
  int64_t size() const { return size(kTrain) + size(kValidation); }
  // Whether there may be more than is counted.
  bool is_full(Split split) const { return size(split) == build_.max_tokens; }

  // Visits the runs of a range in order; `at` is the number of tokens before one.
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
        read_part(ledger_.part(static_cast<int64_t>(unit), split), build_.identity.vocab_size,
                  sizes, wanted, [&](std::span<const int32_t> ids, bool goes_on) {
                    visit(at, ids, goes_on);
                    at += static_cast<int64_t>(ids.size());
                  });
        part_begin += part_size;
        room -= part_size;
      }
    }
  }

 private:
  const TokenBuild& build_;
  const BuildLedger& ledger_;
  const std::vector<UnitProgress>& units_;
  std::array<int64_t, kNumSplits> sizes_{};
};

// Adds a range to the file as a split; returns how many documents it has.
int64_t write_split(const Parts& parts, const TokenRange& range, const std::string& name,
                    FlatTokensWriter* writer) {
  writer->begin_split(name);
  int64_t documents = 0;
  parts.visit(range, [&](int64_t, std::span<const int32_t> ids, bool goes_on) {
    if (goes_on && writer->split_tokens() > 0) {
      writer->extend_document(ids);
    } else {
      writer->add_document(ids);
      ++documents;
    }
  });
  return documents;
}

constexpr int64_t kLeastOfSplit = 2;  // A token, and one to predict.

// Where the tail of all tokens begins: with the first document that begins there, if that leaves at
// least half of the share, or else within one.
int64_t tail_of(const Parts& parts, double fraction) {
  const int64_t size = parts.size();
  const auto cut = static_cast<int64_t>(static_cast<double>(size) * (1.0 - fraction));
  const int64_t last = size - std::max(kLeastOfSplit, (size - cut + 1) / 2);
  int64_t begin = -1;
  parts.visit({cut, last + 1}, [&](int64_t at, std::span<const int32_t>, bool goes_on) {
    if (begin < 0 && !goes_on) begin = at;
  });
  return begin >= 0 ? begin : cut;
}

// Whether a split has far fewer tokens than its share of all, or the other far more: by more than a
// factor of two. One that has as many as max_tokens allows does not.
bool is_too_small(const Parts& parts, Split split, double share) {
  if (parts.is_full(split)) return false;
  const auto all = static_cast<double>(parts.size());
  const auto size = static_cast<double>(parts.size(split));
  return parts.size(split) < kLeastOfSplit || size < 0.5 * share * all ||
         all - size > 2.0 * (1.0 - share) * all;
}

struct SplitRanges {
  std::array<TokenRange, kNumSplits> ranges;
  std::string held_out;
  std::string note;
};

// What goes to which split. Where documents are too few or too long for about a share of all tokens
// to be held out, the tail of all tokens is.
SplitRanges share_out(const TokenBuild& build, const Parts& parts) {
  const int64_t size = parts.size();
  const double fraction = build.validation_fraction;
  SplitRanges shared;
  shared.ranges = {TokenRange{0, parts.size(kTrain)}, TokenRange{parts.size(kTrain), size}};
  shared.held_out = build.from.held_out;
  const bool is_as_asked =
      !is_too_small(parts, kTrain, 1.0 - fraction) && !is_too_small(parts, kValidation, fraction);
  if (is_as_asked || !build.from.holds_out_a_share) return shared;
  const int64_t cut = tail_of(parts, fraction);
  if (cut < kLeastOfSplit || size - cut < kLeastOfSplit) {
    shared.ranges = {TokenRange{0, size}, TokenRange{size, size}};
    shared.held_out = ", none held out";
    shared.note = fmt::format(
        "warning: {} has no validation split: {:g} % of {} tokens are too few; name files for it "
        "with --validation=PATH",
        build.output.string(), 100.0 * fraction, size);
  } else {
    shared.ranges = {TokenRange{0, cut}, TokenRange{cut, size}};
    shared.held_out = fmt::format(", the last {} tokens held out", size - cut);
    shared.note = fmt::format(
        "{}: whole documents to hold out have {} of {} tokens, not about {:g} %, so the last {} of "
        "{} tokens are held out for validation",
        build.output.string(), parts.size(kValidation), size, 100.0 * fraction, size - cut, size);
  }
  return shared;
}

TokenBuilt put_together(const TokenBuild& build, const Parts& parts, const SplitRanges& shared) {
  TokenBuilt built;
  built.description = build.from.files + shared.held_out;
  FlatTokensWriter writer(build.output, build.identity,
                          {.compression = build.compression, .source = built.description});
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

// Error if there is nothing to train on, however often the build is run again.
void check_not_empty(const TokenBuild& build, const Parts& parts, const SplitRanges& shared,
                     BuildLedger* ledger) {
  if (shared.ranges[kTrain].size() > 0) return;
  const bool is_empty = parts.size(kValidation) == 0;
  const std::string& files = build.from.files;
  ledger->remove();
  if (is_empty)
    fail("{}: there is no text in it, so there are no tokens to build a file of", files);
  fail("{}: all its text is held out for validation; nothing is left to train on", files);
}

}  // namespace

TokenBuilt build_tokens(const TokenBuild& build, BuildProgress& progress) {
  CHECK(build.threads >= 1);
  BuildLedger ledger(build.output, build.identity.vocab_size, terms_of(build));
  remove_half_written(build.output);
  if (!ledger.begun_anew().empty())
    progress.say(fmt::format("{}: an unfinished build was told otherwise ({}), so it starts over",
                             build.output.string(), ledger.begun_anew()));
  if (ledger.goes_on())
    progress.say(fmt::format("{}: goes on with an unfinished build", build.output.string()));
  TokenBuilt built;
  std::vector<UnitProgress> units;
  SplitRanges shared;
  std::optional<Parts> parts;
  const auto what_is_done_is_kept = [&](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      if (!ledger.has_records()) throw;
      fail("{}; what is done is kept in {}, and the same command goes on from there", error.what(),
           ledger.folder().string());
    }
  };
  what_is_done_is_kept([&] {
    BuildWork work(build, &ledger);
    work.run(&progress);
    units = work.finished();
    parts.emplace(build, ledger, units);
    shared = share_out(build, *parts);
  });
  check_not_empty(build, *parts, shared, &ledger);
  what_is_done_is_kept([&] { built = put_together(build, *parts, shared); });
  for (const UnitProgress& unit : units) built.left_out.add(unit.left_out);
  if (!shared.note.empty()) progress.say(shared.note);
  ledger.remove();
  return built;
}

}  // namespace tessera
