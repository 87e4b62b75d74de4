// SPDX-License-Identifier: Apache-2.0
// flat_tokens inspect.
#include <algorithm>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "inputs/commands/command.h"
#include "inputs/flat_tokens_file.h"
#include "inputs/tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kUsage =
    R"(  flat_tokens inspect FILE [options]
      Checks every token of a flat-tokens file and tells what is in it.
      --split=NAME                this split only
      --examples=2                documents of each split to show the beginning of
      --length=160                tokens of each to show
)";

// Control characters and bytes beyond ASCII as escapes, so that a line stays a line.
std::string printable(std::string_view text) {
  std::string shown;
  for (unsigned char c : text) {
    if (c == '\n') {
      shown += "\\n";
    } else if (c == '\t') {
      shown += "\\t";
    } else if (c < 0x20 || c >= 0x7f) {
      shown += fmt::format("\\x{:02x}", c);
    } else {
      shown += static_cast<char>(c);
    }
  }
  return shown;
}

struct Statistics {
  int64_t shortest = 0;
  int64_t median = 0;
  int64_t longest = 0;
  int64_t distinct_ids = 0;
};

// Reads every token, which checks its id, and holds the start marks against `seq_starts`.
Statistics survey(const FlatTokensReader& reader, const std::string& where) {
  constexpr int64_t kBlock = 1 << 20;
  std::vector<uint64_t> starts(static_cast<size_t>(reader.num_documents()) + 1);
  reader.read_starts(0, starts);
  std::vector<bool> used(static_cast<size_t>(reader.max_token_id()) + 1);
  std::vector<uint32_t> block;
  size_t document = 0;
  for (int64_t begin = 0; begin < reader.num_tokens(); begin += kBlock) {
    block.resize(static_cast<size_t>(std::min(kBlock, reader.num_tokens() - begin)));
    reader.read(begin, block);
    for (size_t i = 0; i < block.size(); ++i) {
      const auto at = static_cast<uint64_t>(begin) + i;
      while (document + 1 < starts.size() && starts[document] < at) ++document;
      if (is_document_start(block[i]) != (starts[document] == at))
        fail("{}: token {} and seq_starts disagree on whether a document begins there", where, at);
      used[static_cast<size_t>(token_id(block[i]))] = true;
    }
  }
  std::vector<int64_t> lengths;
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    lengths.push_back(static_cast<int64_t>(starts[i + 1] - starts[i]));
  std::sort(lengths.begin(), lengths.end());
  return {lengths.front(), lengths[lengths.size() / 2], lengths.back(),
          std::count(used.begin(), used.end(), true)};
}

void show_examples(const FlatTokensReader& reader, int64_t count, int64_t length,
                   std::ostream& out) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (reader.tokenizer_name() == "bytes") tokenizer = make_tokenizer("bytes");
  for (int64_t i = 0; i < std::min(count, reader.num_documents()); ++i) {
    uint64_t ends[2];
    reader.read_starts(i, ends);
    const auto begin = static_cast<int64_t>(ends[0]);
    std::vector<uint32_t> encoded(
        static_cast<size_t>(std::min(length, static_cast<int64_t>(ends[1]) - begin)));
    reader.read(begin, encoded);
    std::vector<int32_t> ids;
    for (uint32_t token : encoded) ids.push_back(token_id(token));
    fmt::print(
        out, "  document {}: {}\n", i,
        tokenizer ? printable(tokenizer->decode(ids)) : fmt::format("{}", fmt::join(ids, " ")));
  }
}

void inspect(const std::vector<std::string>& words, std::ostream& out, std::ostream&) {
  const Arguments arguments = parse_arguments(words, {"split", "examples", "length"});
  if (arguments.paths.size() != 1)
    throw UsageError(fmt::format("inspect wants one FILE, got {}", arguments.paths.size()));
  const int64_t examples = arguments.number<int64_t>("examples", 2, 0, 1000000);
  const int64_t length = arguments.number<int64_t>("length", 160, 1, 1000000);
  const std::string& path = arguments.paths[0];
  std::vector<std::string> splits = FlatTokensReader::splits(path);
  if (const std::string only = arguments.text("split", ""); !only.empty() || splits.empty())
    splits = {only};  // The reader explains what is wrong with it.
  for (const std::string& split : splits) {
    const FlatTokensReader reader(path, split);
    const Statistics statistics = survey(reader, fmt::format("{}:{}", path, split));
    fmt::print(out, "{}: {} tokens; documents: {}, of {} to {} tokens, median {}\n", split,
               reader.num_tokens(), reader.num_documents(), statistics.shortest, statistics.longest,
               statistics.median);
    fmt::print(out, "  vocabulary {}, {} ids in use, the largest {}; tokenizer {} ({})\n",
               reader.vocab_size(), statistics.distinct_ids, reader.max_token_id(),
               reader.tokenizer_name(), reader.tokenizer_fingerprint());
    if (!reader.source().empty()) fmt::print(out, "  from {}\n", reader.source());
    show_examples(reader, examples, length, out);
  }
}

}  // namespace

Command inspect_command() { return {"inspect", std::string(kUsage), inspect}; }

}  // namespace tessera
