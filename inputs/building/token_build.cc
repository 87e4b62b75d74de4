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
          fmt::format("validation: {:g} {}", build.validation_fraction, build.from.description),
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

// A run of a split's tokens, over all units.
struct TokenRange {
  Split split = kTrain;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// The runs of tokens that a build has made, unit by unit.
class Parts {
 public:
  Parts(const TokenBuild& build, const BuildLedger& ledger, const std::vector<UnitProgress>& units)
      : build_(build), ledger_(ledger), units_(units) {}

  int64_t size(Split split) const {
    int64_t size = 0;
    for (const UnitProgress& unit : units_) size += unit.parts[split].ids;
    return size;
  }

  // Visits a split's runs in order; `at` is the number of tokens before one.
  template <typename Visit>
  void visit(Split split, const Visit& visit) const {
    int64_t at = 0;
    for (size_t unit = 0; unit < units_.size(); ++unit)
      read_part(ledger_.part(static_cast<int64_t>(unit), split), build_.identity.vocab_size,
                units_[unit].parts[split], [&](std::span<const int32_t> ids, bool goes_on) {
                  visit(at, ids, goes_on);
                  at += static_cast<int64_t>(ids.size());
                });
  }

 private:
  const TokenBuild& build_;
  const BuildLedger& ledger_;
  const std::vector<UnitProgress>& units_;
};

// Adds a range to the file as a split, up to max_tokens; returns how many documents it has.
int64_t write_split(const TokenBuild& build, const Parts& parts, const TokenRange& range,
                    const std::string& name, FlatTokensWriter* writer) {
  writer->begin_split(name);
  int64_t documents = 0;
  int64_t room = build.max_tokens < 0 ? range.size() : std::min(range.size(), build.max_tokens);
  parts.visit(range.split, [&](int64_t at, std::span<const int32_t> ids, bool goes_on) {
    const auto size = static_cast<int64_t>(ids.size());
    const int64_t skipped = std::clamp<int64_t>(range.begin - at, 0, size);
    const int64_t taken = std::min(size - skipped, room);
    if (taken <= 0) return;
    room -= taken;
    const auto some = ids.subspan(static_cast<size_t>(skipped), static_cast<size_t>(taken));
    if (goes_on && writer->split_tokens() > 0) {
      writer->extend_document(some);
    } else {
      writer->add_document(some);
      ++documents;
    }
  });
  return documents;
}

// Where the tail of all tokens begins: with the first document that begins there, or else within
// one.
int64_t tail_of(const Parts& parts, Split split, double fraction) {
  const int64_t size = parts.size(split);
  const auto cut = static_cast<int64_t>(static_cast<double>(size) * (1.0 - fraction));
  int64_t begin = -1;
  parts.visit(split, [&](int64_t at, std::span<const int32_t>, bool goes_on) {
    if (begin < 0 && at >= cut && !goes_on) begin = at;
  });
  return begin >= 0 && begin < size ? begin : cut;
}

struct SplitRanges {
  std::array<TokenRange, kNumSplits> ranges;
  std::string held_out;  // In place of BuildInputs::held_out; "": that holds.
  std::string note;
};

// What goes to which split. Where documents are too few for a share of them to be held out, the
// tail of all tokens is.
SplitRanges share_out(const TokenBuild& build, const Parts& parts) {
  constexpr int64_t kLeastHeldOut = 2;  // A token, and one to predict.
  SplitRanges shared;
  for (const Split split : {kTrain, kValidation})
    shared.ranges[split] = {split, 0, parts.size(split)};
  const bool is_shared = shared.ranges[kTrain].size() > 0 && shared.ranges[kValidation].size() > 0;
  if (is_shared || !build.from.holds_out_a_share) return shared;
  const Split whole = shared.ranges[kTrain].size() > 0 ? kTrain : kValidation;
  const int64_t size = parts.size(whole);
  const int64_t cut = tail_of(parts, whole, build.validation_fraction);
  if (cut == 0 || size - cut < kLeastHeldOut) {
    shared.ranges = {TokenRange{whole, 0, size}, TokenRange{whole, size, size}};
    shared.held_out = ", none held out";
    shared.note = fmt::format(
        "warning: {} has no validation split: {:g} % of {} tokens are too few; name files for it "
        "with --validation=PATH",
        build.output.string(), 100.0 * build.validation_fraction, size);
  } else {
    shared.ranges = {TokenRange{whole, 0, cut}, TokenRange{whole, cut, size}};
    shared.held_out = fmt::format(", the last {} tokens held out", size - cut);
    shared.note = fmt::format(
        "{}: no whole document makes up {:g} %, so the last {} of {} tokens are held out for "
        "validation",
        build.output.string(), 100.0 * build.validation_fraction, size - cut, size);
  }
  return shared;
}

// The description without what was to be held out.
std::string files_text(const TokenBuild& build) {
  std::string text = build.from.description;
  if (text.ends_with(build.from.held_out)) text.resize(text.size() - build.from.held_out.size());
  return text;
}

TokenBuilt put_together(const TokenBuild& build, const Parts& parts, const SplitRanges& shared) {
  TokenBuilt built;
  built.description = build.from.description;
  if (!shared.held_out.empty()) built.description = files_text(build) + shared.held_out;
  FlatTokensWriter writer(build.output, build.identity,
                          {.compression = build.compression, .source = built.description});
  for (size_t split = 0; split < kNumSplits; ++split) {
    if (shared.ranges[split].size() == 0) continue;
    built.documents[split] =
        write_split(build, parts, shared.ranges[split], kSplitNames[split], &writer);
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
  const std::string files = files_text(build);
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
  const Parts parts(build, ledger, units);
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
    shared = share_out(build, parts);
  });
  check_not_empty(build, parts, shared, &ledger);
  what_is_done_is_kept([&] { built = put_together(build, parts, shared); });
  for (const UnitProgress& unit : units) built.left_out.add(unit.left_out);
  if (!shared.note.empty()) progress.say(shared.note);
  ledger.remove();
  return built;
}

}  // namespace tessera
