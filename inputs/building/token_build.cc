// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/token_build.h"

#include <algorithm>

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

// Adds a unit's part of a split to the file, up to `room` tokens.
class SplitWriter {
 public:
  SplitWriter(const TokenBuild& build, const BuildLedger& ledger, FlatTokensWriter* writer)
      : build_(build), ledger_(ledger), writer_(writer) {}

  // Returns how many documents it has.
  int64_t write(Split split, const std::vector<UnitProgress>& units) {
    writer_->begin_split(kSplitNames[split]);
    int64_t documents = 0;
    for (size_t unit = 0; unit < units.size() && room() > 0; ++unit)
      read_part(ledger_.part(static_cast<int64_t>(unit), split), build_.identity.vocab_size,
                units[unit].parts[split], [&](std::span<const int32_t> ids, bool goes_on) {
                  ids = ids.first(std::min(ids.size(), room()));
                  if (ids.empty()) return;
                  if (goes_on) {
                    writer_->extend_document(ids);
                  } else {
                    writer_->add_document(ids);
                    ++documents;
                  }
                });
    return documents;
  }

 private:
  size_t room() const {
    if (build_.max_tokens < 0) return SIZE_MAX;
    return static_cast<size_t>(build_.max_tokens - writer_->split_tokens());
  }

  const TokenBuild& build_;
  const BuildLedger& ledger_;
  FlatTokensWriter* writer_;
};

TokenBuilt put_together(const TokenBuild& build, const BuildLedger& ledger,
                        const std::vector<UnitProgress>& units) {
  TokenBuilt built;
  std::array<int64_t, kNumSplits> held{};
  for (const UnitProgress& unit : units) {
    built.left_out.add(unit.left_out);
    for (size_t split = 0; split < kNumSplits; ++split) held[split] += unit.parts[split].ids;
  }
  if (held[kTrain] == 0)
    fail("{}: the corpus is empty: nothing is left to train on", build.from.description);
  FlatTokensWriter writer(build.output, build.identity,
                          {.compression = build.compression, .source = build.from.description});
  SplitWriter splits(build, ledger, &writer);
  for (size_t split = 0; split < kNumSplits; ++split) {
    if (held[split] == 0) continue;
    built.documents[split] = splits.write(static_cast<Split>(split), units);
    built.tokens[split] = writer.split_tokens();
  }
  writer.finish();
  return built;
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
  try {
    BuildWork work(build, &ledger);
    work.run(&progress);
    built = put_together(build, ledger, work.finished());
  } catch (const Error& error) {
    if (!ledger.has_records()) throw;
    fail("{}; what is done is kept in {}, and the same command goes on from there", error.what(),
         ledger.folder().string());
  }
  ledger.remove();
  return built;
}

}  // namespace tessera
