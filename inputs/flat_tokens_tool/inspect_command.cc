// SPDX-License-Identifier: Apache-2.0
// Implements the command `flat_tokens inspect`: prints statistics of a token file, and checks it.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/flat_tokens/manifest.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {
namespace {

struct TokenCount {
  int32_t id = 0;
  int64_t count = 0;
};

constexpr int64_t kTokensAtATime = 1 << 20;
constexpr int64_t kMostInTable = int64_t{1} << 24;  // max_token_id is untrusted.

// The count of each id.
class IdCounts {
 public:
  explicit IdCounts(int64_t max_token_id)
      : table_(max_token_id < kMostInTable ? static_cast<size_t>(max_token_id) + 1 : 0) {}

  void add(int32_t id) {
    if (table_.empty()) {
      ++sparse_[id];
    } else {
      ++table_[static_cast<size_t>(id)];
    }
  }
  // The ids in use, the most frequent first.
  std::vector<TokenCount> sorted() const {
    std::vector<TokenCount> all;
    for (size_t id = 0; id < table_.size(); ++id)
      if (table_[id] > 0) all.push_back({static_cast<int32_t>(id), table_[id]});
    for (const auto& [id, count] : sparse_) all.push_back({id, count});
    std::ranges::sort(all, {}, [](const TokenCount& one) { return std::pair(-one.count, one.id); });
    return all;
  }

 private:
  std::vector<int64_t> table_;
  std::unordered_map<int32_t, int64_t> sparse_;
};

// Reads `seq_starts` in order, in blocks.
class Starts {
 public:
  explicit Starts(const FlatTokensReader& reader)
      : reader_(reader), count_(reader.num_documents() + 1) {}
  bool at_end() const { return next_ == count_; }
  int64_t take() {
    const auto within = static_cast<size_t>(next_ % kTokensAtATime);
    if (within == 0) {
      block_.resize(static_cast<size_t>(std::min(kTokensAtATime, count_ - next_)));
      reader_.read_starts(next_, block_);
    }
    ++next_;
    return static_cast<int64_t>(block_[within]);
  }

 private:
  const FlatTokensReader& reader_;
  int64_t count_;
  int64_t next_ = 0;
  std::vector<uint64_t> block_;
};

// Statistics of a split: reads and checks every token once, in bounded memory.
class StatisticsCollector {
 public:
  // Errors are prefixed with `where`.
  StatisticsCollector(const FlatTokensReader& reader, std::string where)
      : reader_(reader),
        where_(std::move(where)),
        starts_(reader),
        counts_(reader.max_token_id()),
        document_(starts_.take()) {}

  // Error if start marks and seq_starts disagree.
  void run() {
    std::vector<uint32_t> block;
    for (int64_t begin = 0; begin < reader_.num_tokens(); begin += kTokensAtATime) {
      block.resize(static_cast<size_t>(std::min(kTokensAtATime, reader_.num_tokens() - begin)));
      reader_.read(begin, block);
      for (size_t i = 0; i < block.size(); ++i) take(begin + static_cast<int64_t>(i), block[i]);
    }
    while (!starts_.at_end()) next_document();
  }

  std::vector<TokenCount> counts() const { return counts_.sorted(); }
  const std::map<int64_t, int64_t>& lengths() const { return lengths_; }
  int64_t median_length() const {
    int64_t passed = 0, median = 0;
    for (const auto& [length, count] : lengths_) {
      if (passed <= reader_.num_documents() / 2) median = length;
      passed += count;
    }
    return median;
  }

 private:
  void take(int64_t at, uint32_t encoded) {
    // Several empty documents may begin at one token.
    const bool begins = document_ == at;
    while (document_ == at && !starts_.at_end()) next_document();
    if (is_document_start(encoded) != begins)
      fail("{}: token {} and seq_starts disagree on whether a document begins there", where_, at);
    counts_.add(token_id(encoded));
  }

  // `document_` is the beginning of the next document.
  void next_document() {
    const int64_t begin = document_;
    document_ = starts_.take();
    ++lengths_[document_ - begin];
  }

  const FlatTokensReader& reader_;
  std::string where_;
  Starts starts_;
  IdCounts counts_;
  // Documents by length. Few: n different lengths need at least n * n / 2 tokens.
  std::map<int64_t, int64_t> lengths_;
  int64_t document_ = 0;
};

constexpr int64_t kMostShown = 1000000;

// Makes text safe to print, on one line.
std::string shown_text(std::string_view text) {
  std::string shown;
  for (const char c : printable(text)) {
    if (c == '\n')
      shown += "\\n";
    else if (c == '\t')
      shown += "\\t";
    else
      shown += c;
  }
  return shown;
}

std::string percent(int64_t part, int64_t whole) {
  return fmt::format("{:.2f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

struct Inspect {
  static constexpr std::string_view kName = "inspect", kUsage = "inspect FILE [OTHER]";
  static constexpr std::string_view kAbout =
      "Checks every token of a flat-tokens file and describes its contents. With OTHER it prints "
      "in what the two files, and what they were built from, differ.";

  std::string split;
  int64_t examples = 2;
  int64_t first = 0;
  int64_t length = 160;
  int64_t most_frequent = 10;
  std::filesystem::path tokenizer;
  FIELDS(About(split, "this split only", {.unit = "NAME"}),
         About(examples, "documents of each split to show the beginning of",
               {.min = 0, .max = kMostShown}),
         About(first, "the number of the first of them", {.min = 0}),
         About(length, "tokens of each to show", {.min = 1, .max = kMostShown}),
         About(most_frequent, "tokens to list with their share", {.min = 0, .max = kMostShown}),
         About(tokenizer, "that made the tokens, if the file does not contain it",
               {.unit = "FILE"}))

  void run(const Paths& paths, const Printed& printed) const;
};

class Inspection {
 public:
  Inspection(const Inspect& flags, std::string path, const Printed& printed)
      : flags_(flags), path_(std::move(path)), out_(printed.out), notes_(printed.notes) {}

  void show(const std::string& split) {
    const FlatTokensReader reader(path_, split);
    open_tokenizer(reader);
    StatisticsCollector collector(reader, fmt::format("{}:{}", path_, split));
    collector.run();
    const std::map<int64_t, int64_t>& lengths = collector.lengths();
    const std::vector<TokenCount> counts = collector.counts();
    fmt::print(out_, "{}: {} tokens; documents: {}, of {} to {} tokens, median {}\n", split,
               reader.num_tokens(), reader.num_documents(), lengths.begin()->first,
               lengths.rbegin()->first, collector.median_length());
    fmt::print(out_, "  vocabulary {}, {} ids in use ({}), the largest {}; tokenizer {} ({})\n",
               reader.vocab_size(), counts.size(), percent(std::ssize(counts), reader.vocab_size()),
               reader.max_token_id(), shown_text(reader.tokenizer_name()),
               shown_text(reader.tokenizer_fingerprint()));
    if (tokenizer_ != nullptr) show_bytes(counts, reader.num_tokens());
    if (!reader.source().empty()) fmt::print(out_, "  from {}\n", shown_text(reader.source()));
    if (const std::string manifest = reader.manifest(); !manifest.empty())
      fmt::print(out_, "  of {}\n", shown_text(manifest_summary(manifest)));
    show_lengths(lengths, reader.num_documents());
    show_most_frequent(counts, reader.num_tokens());
    show_examples(reader);
  }

 private:
  // Without a tokenizer, ids are printed as numbers.
  void open_tokenizer(const FlatTokensReader& reader) {
    try {
      tokenizer_ = tokenizer_of_tokens(reader, path_, flags_.tokenizer.string());
    } catch (const Error& error) {
      if (!flags_.tokenizer.string().empty()) throw;
      tokenizer_.reset();
      fmt::print(notes_, "ids are shown as numbers: {}\n", error.what());
    }
  }

  std::string text_of(const std::vector<int32_t>& ids) const {
    if (tokenizer_ == nullptr) return fmt::format("{}", fmt::join(ids, " "));
    return shown_text(tokenizer_->decode(ids));
  }

  void show_bytes(const std::vector<TokenCount>& counts, int64_t tokens) const {
    int64_t bytes = 0;
    for (const TokenCount& one : counts) bytes += one.count * tokenizer_->byte_length(one.id);
    fmt::print(out_, "  {} bytes of text, {:.3f} per token\n", bytes,
               static_cast<double>(bytes) / static_cast<double>(tokens));
  }

  void show_lengths(const std::map<int64_t, int64_t>& lengths, int64_t documents) const {
    constexpr int64_t kWidest = 40;
    // [k]: documents of 2^(k-1) to 2^k - 1 tokens; [0]: of none.
    std::array<int64_t, 64> by_bits{};
    for (const auto& [length, count] : lengths)
      by_bits[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length)))] += count;
    const int64_t most = *std::ranges::max_element(by_bits);
    for (size_t k = 0; k < by_bits.size(); ++k) {
      const int64_t count = by_bits[k], least = int64_t{1} << k >> 1;
      if (count == 0) continue;
      const auto width = static_cast<size_t>((count * kWidest + most - 1) / most);
      const std::string range = k == 0   ? "no"
                                : k == 1 ? "1"
                                         : fmt::format("{} to {}", least, 2 * (least - 1) + 1);
      fmt::print(out_, "  {:>22} tokens  {:<{}}  {} ({})\n", range, std::string(width, '#'),
                 kWidest, count, percent(count, documents));
    }
  }

  void show_most_frequent(const std::vector<TokenCount>& counts, int64_t tokens) const {
    if (flags_.most_frequent == 0) return;
    std::vector<std::string> shown;
    for (const TokenCount& one : counts) {
      if (std::ssize(shown) == flags_.most_frequent) break;
      // Special tokens and parts of characters have no text.
      const std::string text = tokenizer_ == nullptr ? "" : tokenizer_->decode({one.id});
      const std::string quoted = text.empty() ? "" : fmt::format(" '{}'", shown_text(text));
      shown.push_back(fmt::format("{}{} {}", one.id, quoted, percent(one.count, tokens)));
    }
    fmt::print(out_, "  most frequent: {}\n", fmt::join(shown, ", "));
  }

  void show_examples(const FlatTokensReader& reader) const {
    const int64_t end = std::min(
        reader.num_documents(), flags_.first + std::min(flags_.examples, INT64_MAX - flags_.first));
    for (int64_t i = flags_.first; i < end; ++i) {
      uint64_t ends[2];
      reader.read_starts(i, ends);
      const auto begin = static_cast<int64_t>(ends[0]);
      std::vector<uint32_t> encoded(
          static_cast<size_t>(std::min(flags_.length, static_cast<int64_t>(ends[1]) - begin)));
      reader.read(begin, encoded);
      std::vector<int32_t> ids;
      for (const uint32_t token : encoded) ids.push_back(token_id(token));
      fmt::print(out_, "  document {}: {}\n", i, text_of(ids));
    }
  }

  const Inspect& flags_;
  std::string path_;
  std::ostream& out_;
  std::ostream& notes_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// What two files have of a split: its tokens, and those of whose tokenizer.
std::vector<std::string> split_differences(const std::string& split, const Paths& paths) {
  std::vector<std::string> about[2];
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<std::string> splits = FlatTokensReader::splits(paths[i]);
    if (std::ranges::find(splits, split) == splits.end()) {
      about[i] = {"none", "", ""};
      continue;
    }
    const FlatTokensReader reader(paths[i], split);
    about[i] = {
        fmt::format("{} tokens in {} documents", reader.num_tokens(), reader.num_documents()),
        reader.fingerprint(),
        fmt::format("{} ({})", reader.tokenizer_name(), reader.tokenizer_fingerprint())};
  }
  std::vector<std::string> lines;
  const auto compare = [&](size_t place, std::string_view what) {
    if (about[0][place] != about[1][place] && !about[0][place].empty() && !about[1][place].empty())
      lines.push_back(
          fmt::format("{}{}: {}, then {}", split, what, about[0][place], about[1][place]));
  };
  compare(0, "");
  if (lines.empty()) compare(1, ", first tokens");
  compare(2, ", tokenizer");
  return lines;
}

void compare_files(const Paths& paths, std::ostream& out) {
  std::vector<std::string> lines, manifests;
  std::set<std::string> splits;
  for (const std::filesystem::path& path : paths) {
    const std::vector<std::string> of_file = FlatTokensReader::splits(path);
    if (of_file.empty()) FlatTokensReader(path, "");  // Its error.
    splits.insert(of_file.begin(), of_file.end());
    manifests.push_back(FlatTokensReader(path, of_file[0]).manifest());
    if (manifests.back().empty())
      lines.push_back(fmt::format("{} has no manifest: an older version or another program made it",
                                  path.string()));
  }
  for (const std::string& split : splits)
    std::ranges::move(split_differences(split, paths), std::back_inserter(lines));
  if (!manifests[0].empty() && !manifests[1].empty())
    std::ranges::move(manifest_differences(manifests[0], manifests[1]), std::back_inserter(lines));
  if (lines.empty()) fmt::print(out, "no difference\n");
  for (const std::string& line : lines) fmt::print(out, "{}\n", shown_text(line));
}

void Inspect::run(const Paths& paths, const Printed& printed) const {
  if (paths.empty() || paths.size() > 2)
    throw UsageError(fmt::format("inspect needs one FILE, or two, got {}", paths.size()));
  if (paths.size() == 2) return compare_files(paths, printed.out);
  Inspection inspection(*this, paths[0].string(), printed);
  std::vector<std::string> splits = FlatTokensReader::splits(paths[0]);
  if (!split.empty() || splits.empty()) splits = {split};  // The reader reports the error.
  for (const std::string& each : splits) inspection.show(each);
}

}  // namespace

FlatTokensCommand inspect_command() { return flat_tokens_command<Inspect>(); }

}  // namespace tessera
