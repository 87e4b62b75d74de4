// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "inputs/flat_tokens_file.h"
#include "inputs/text_corpus.h"
#include "inputs/tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kUsage = R"(usage:
  flat_tokens build --output=FILE [options] PATH...
      Makes a flat-tokens file of text files. PATH is a file, a folder or a pattern ('docs/*.md').
      --tokenizer=bytes           byte b is token b + 1
      --validation_fraction=0.1   held out: the tail of one file, or whole files of several
      --max_tokens=N              of each split; the rest is left out
      --compression=0             deflate level, 0 to 9
  flat_tokens inspect FILE [options]
      Checks every token of a flat-tokens file and tells what is in it.
      --split=NAME                this split only
      --examples=2                documents of each split to show the beginning of
      --length=160                tokens of each to show
)";

// A slip in how the program was called; everything else that goes wrong is the data's fault.
class UsageError : public Error {
 public:
  using Error::Error;
};

struct Arguments {
  std::map<std::string, std::string> flags;
  std::vector<std::string> paths;

  std::string text(const std::string& name, const std::string& fallback) const {
    const auto found = flags.find(name);
    return found == flags.end() ? fallback : found->second;
  }
  template <typename T>
  T number(const std::string& name, T fallback, T least, T most) const {
    const auto found = flags.find(name);
    if (found == flags.end()) return fallback;
    const std::string& text = found->second;
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= least) ||
        !(value <= most))
      throw UsageError(
          fmt::format("--{}={}: expected a number from {} to {}", name, text, least, most));
    return value;
  }
};

Arguments parse(const std::vector<std::string>& words, const std::vector<std::string>& known) {
  Arguments result;
  for (const std::string& word : words) {
    if (!word.starts_with("--")) {
      result.paths.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(fmt::format("no flag --{}{}", name, did_you_mean(name, known)));
    if (equals == std::string::npos)
      throw UsageError(fmt::format("--{} wants a value: --{}=VALUE", name, name));
    if (!result.flags.emplace(name, word.substr(equals + 1)).second)
      throw UsageError(fmt::format("--{} is given twice", name));
  }
  return result;
}

void build(const std::vector<std::string>& words, std::ostream& out) {
  const Arguments arguments =
      parse(words, {"output", "tokenizer", "validation_fraction", "max_tokens", "compression"});
  const std::string output = arguments.text("output", "");
  if (output.empty()) throw UsageError("build wants --output=FILE");
  if (arguments.paths.empty()) throw UsageError("build wants at least one PATH of text");
  const double fraction = arguments.number<double>("validation_fraction", 0.1, 0.0, 0.999999);
  FlatTokensBuildOptions options;
  options.max_tokens = arguments.number<int64_t>("max_tokens", -1, 1, int64_t{1} << 60);
  options.compression = arguments.number<int>("compression", 0, 0, 9);
  const auto tokenizer = make_tokenizer(arguments.text("tokenizer", "bytes"));
  const Corpus corpus =
      split_corpus(find_text_files(arguments.paths), std::filesystem::current_path(), fraction);
  const FlatTokensBuilt built = build_flat_tokens(corpus, *tokenizer, output, options);
  fmt::print(out, "{}: {} training and {} validation tokens of {}\n", output, built.train_tokens,
             built.validation_tokens, corpus.description);
}

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

void inspect(const std::vector<std::string>& words, std::ostream& out) {
  const Arguments arguments = parse(words, {"split", "examples", "length"});
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

void dispatch(const std::vector<std::string>& arguments, std::ostream& out) {
  if (arguments.empty()) throw UsageError("say what to do: build or inspect");
  const std::string& command = arguments[0];
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  const bool asks_help =
      command == "help" ||
      std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
        return argument == "--help" || argument == "-h";
      });
  if (asks_help) {
    fmt::print(out, "{}", kUsage);
  } else if (command == "build") {
    build(rest, out);
  } else if (command == "inspect") {
    inspect(rest, out);
  } else {
    throw UsageError(
        fmt::format("no command '{}'{}", command, did_you_mean(command, {"build", "inspect"})));
  }
}

}  // namespace

int run_flat_tokens(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& errors) {
  try {
    dispatch(arguments, out);
    return 0;
  } catch (const UsageError& error) {
    fmt::print(errors, "flat_tokens: {}; flat_tokens --help says how it is used\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(errors, "flat_tokens: {}\n", error.what());
    return 1;
  }
}

}  // namespace tessera
