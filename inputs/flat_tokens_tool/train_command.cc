// SPDX-License-Identifier: Apache-2.0
// Implements the command `flat_tokens train`: its flags, and the choice of the trainer.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/ostream.h>

#include "core/base/process.h"
#include "core/io/file.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/flat_tokens_tool/train_sentence_piece.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/text_files.h"
#include "inputs/tokenizers/byte_bpe_trainer.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {
namespace {

// The documents of files, for several threads.
class TextQueue {
 public:
  TextQueue(const Paths& files, const ReadOptions& options) : files_(files), options_(options) {}

  // An error ends the documents; documents() throws it.
  std::optional<std::string> next() {
    const std::lock_guard hold(mutex_);
    try {
      while (!error_ && (reader_ != nullptr || next_file_ < files_.size())) {
        if (reader_ == nullptr) reader_ = open_documents(files_[next_file_++], options_);
        if (auto document = reader_->next()) return ++documents_, document;
        reader_ = nullptr;
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    return std::nullopt;
  }

  // Returns their number, at the end.
  int64_t documents() const {
    if (error_) std::rethrow_exception(error_);
    return documents_;
  }

 private:
  const Paths& files_;
  const ReadOptions& options_;
  std::mutex mutex_;  // Guards all members below.
  size_t next_file_ = 0;
  std::unique_ptr<DocumentReader> reader_;
  int64_t documents_ = 0;
  std::exception_ptr error_;
};

struct TrainTokenizer {
  static constexpr std::string_view kName = "train", kUsage = "train --output=FILE PATH...";
  static constexpr std::string_view kAbout =
      "Trains a tokenizer, for build --tokenizer=FILE. FILE.json is byte-level BPE in Hugging "
      "Face's form, beside tokenizer.json with the tokenizer_config.json; FILE.model is "
      "SentencePiece. PATH as for build.";
  static constexpr int64_t kLeastTokens = 257;

  std::filesystem::path output;
  int64_t vocab_size = TrainSentencePieceOptions{}.vocab_size;
  std::string text_field = ReadOptions{}.text_field;
  std::optional<WordPattern> pattern;
  std::vector<std::string> special_tokens;
  std::optional<int64_t> min_frequency;
  std::optional<int64_t> threads;
  std::optional<SentencePieceModel> model;
  std::optional<double> character_coverage;
  std::optional<int64_t> max_lines;
  FIELDS(
      About(output, "the tokenizer: FILE.json or FILE.model", {.unit = "FILE"}),
      About(vocab_size, "including 256 bytes and special tokens (three of SentencePiece)",
            {.min = kLeastTokens, .max = 1 << 21}),
      About(text_field, "of records; a.b is the member b of a", {.unit = "NAME"}),
      About(pattern, "of .json: splits text into words (default: cl100k, as Llama 3)"),
      About(special_tokens, "of .json, may be repeated (default: <|endoftext|>)",
            {.unit = "TOKEN"}),
      About(min_frequency, "of .json: rarer pairs are not merged (default: 0)",
            {.min = 0, .max = int64_t{1} << 40}),
      About(threads, "of .json: default: all processors; does not change the output",
            {.min = 1, .max = 1024}),
      About(model, "of .model: its kind (default: unigram)"),
      About(character_coverage,
            "of .model: fraction of characters with tokens (default: 0.9995); the rest are bytes",
            {.min = 0.98, .max = 1}),
      About(max_lines, "of .model: a random sample of a larger text (default: 1000000)",
            {.min = 1, .max = 1 << 30}))

  void run(const Paths& paths, const Printed& printed) const {
    if (output.empty()) throw UsageError("train needs --output=FILE.json or FILE.model");
    const bool is_json = output.extension() == ".json";
    if (!is_json && output.extension() != ".model")
      throw UsageError(
          fmt::format("--output={}: expected a name that ends in .json or .model, which "
                      "--tokenizer recognises",
                      output.string()));
    if (paths.empty()) throw UsageError("train needs at least one PATH of text");
    check_flags(is_json);
    std::vector<std::string> places;
    for (const std::filesystem::path& path : paths) places.push_back(path.string());
    const TextFiles found = find_text_files(places);
    if (!found.left_out.empty()) fmt::print(printed.notes, "{}\n", found.left_out);
    Paths files;
    for (const TextFile& file : found.files) files.push_back(file.path);
    check_not_an_input(output, files);
    if (is_json)
      train_json(files, printed);
    else
      train_model(files, printed);
  }

 private:
  // Refuses flags of the other kind of tokenizer.
  void check_flags(bool is_json) const {
    const std::pair<std::string_view, bool> given[] = {
        {"pattern", pattern && !is_json},
        {"special_tokens", !special_tokens.empty() && !is_json},
        {"min_frequency", min_frequency && !is_json},
        {"threads", threads && !is_json},
        {"model", model && is_json},
        {"character_coverage", character_coverage && is_json},
        {"max_lines", max_lines && is_json}};
    for (const auto& [name, is_refused] : given)
      if (is_refused)
        throw UsageError(fmt::format("--{} is of --output=FILE{} only, got --output={}", name,
                                     is_json ? ".model" : ".json", output.string()));
  }

  void train_json(const Paths& files, const Printed& printed) const {
    ByteBpeOptions options{.vocab_size = vocab_size,
                           .min_frequency = min_frequency.value_or(0),
                           .special_tokens = special_tokens};
    std::vector<std::string>& special = options.special_tokens;
    if (special.empty()) special = {"<|endoftext|>"};
    if (const std::set<std::string> names(special.begin(), special.end());
        names.contains("") || names.size() < special.size())
      throw UsageError("--special_tokens: a token is empty or given twice");
    if (vocab_size < 256 + std::ssize(special))
      throw UsageError(
          fmt::format("--vocab_size={}: expected at least {}: 256 bytes and {} "
                      "special tokens",
                      vocab_size, 256 + special.size(), special.size()));
    const WordPattern chosen = pattern.value_or(WordPattern::kCl100k);
    ReadOptions read;
    read.text_field = text_field;
    int64_t documents = 0;
    WordCounts counts = count_words(files, read, chosen, &documents);
    const size_t words = counts.size();
    if (words == 0) fail("the input has no text to train a tokenizer on");
    const ByteBpe trained = train_byte_bpe(std::move(counts), options);
    const std::string json = tokenizer_json(trained, special, chosen);
    write_file_atomically(output, json);
    if (output.filename() == "tokenizer.json")  // For transformers' AutoTokenizer.
      write_file_atomically(
          output.parent_path() / "tokenizer_config.json",
          tokenizer_config_json(*tokenizer_of_files("", {{"tokenizer.json", json}})));
    fmt::print(printed.out, "{}: {} tokens{}, from {} distinct words of {} documents\n",
               output.string(), trained.vocabulary.size(),
               std::ssize(trained.vocabulary) < vocab_size ? " (no pair is left to merge)" : "",
               words, documents);
  }

  WordCounts count_words(const Paths& files, const ReadOptions& read, WordPattern chosen,
                         int64_t* documents) const {
    TextQueue queue(files, read);
    const auto work = [&](WordCounts* counts) {
      const WordScanner scanner(chosen);
      while (const auto document = queue.next())
        scanner.for_each_word(*document, [&](std::string_view word) {
          const auto found = counts->find(word);
          ++(found != counts->end() ? found : counts->emplace(word, 0).first)->second;
        });
    };
    std::vector<WordCounts> counts(static_cast<size_t>(
        threads.value_or(std::max<int64_t>(1, std::thread::hardware_concurrency()))));
    const int64_t count = std::ssize(counts);
    parallel_for(count, count, [&](int64_t i) { work(&counts[static_cast<size_t>(i)]); });
    *documents = queue.documents();
    for (; counts.size() > 1; counts.pop_back())
      for (const auto& [word, count] : counts.back()) counts[0][word] += count;
    return std::move(counts[0]);
  }

  void train_model(const Paths& files, const Printed& printed) const {
    TrainSentencePieceOptions options;
    options.vocab_size = vocab_size;
    options.model = model.value_or(options.model);
    options.character_coverage = character_coverage.value_or(options.character_coverage);
    options.max_lines = max_lines.value_or(options.max_lines);
    options.read.text_field = text_field;
    const TrainedSentencePiece trained = train_sentence_piece(files, options, output);
    if (trained.skipped.count > 0)
      fmt::print(printed.notes, "skipped {} corrupt records, the first: {}\n",
                 trained.skipped.count, trained.skipped.first);
    fmt::print(printed.out, "{}: {} tokens, from {} lines of {} documents\n", output.string(),
               vocab_size, trained.lines, trained.documents);
  }
};

}  // namespace

FlatTokensCommand train_command() { return flat_tokens_command<TrainTokenizer>(); }

}  // namespace tessera
