// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool/train_byte_bpe.h"

#include <cctype>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace tessera {
namespace {

// A part of a document that is split into the same words as in the whole document.
struct TextPart {
  std::shared_ptr<const std::string> document;
  std::string_view text;
};

// Returns the end of a first part of about a megabyte: between "x\n" and a letter, where no pattern
// has a word, and none looks across.
size_t end_of_part(std::string_view text) {
  constexpr size_t kPart = 1 << 20;
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  for (size_t at = kPart; at < text.size(); ++at)
    if (text[at - 1] == '\n' && byte(at) < 0x80 && std::isalpha(byte(at)) != 0 &&
        byte(at - 2) < 0x80 && std::isgraph(byte(at - 2)) != 0)
      return at;
  return text.size();
}

// Reads documents for several threads.
class TextParts {
 public:
  TextParts(const std::vector<std::filesystem::path>& files, const ReadOptions& options)
      : files_(files), options_(options) {}

  std::optional<TextPart> next() {
    const std::lock_guard hold(mutex_);
    while (rest_.text.empty())
      if (!next_document()) return std::nullopt;
    TextPart part = rest_;
    part.text = part.text.substr(0, end_of_part(part.text));
    rest_.text.remove_prefix(part.text.size());
    return part;
  }

  // Ends the text.
  void stop(std::exception_ptr error) {
    const std::lock_guard hold(mutex_);
    if (!error_) error_ = std::move(error);
    rest_ = {};
    reader_ = nullptr;
    next_file_ = files_.size();
  }

  // After the threads have ended.
  const std::exception_ptr& error() const { return error_; }
  int64_t documents() const { return documents_; }

 private:
  bool next_document() {
    while (true) {
      if (reader_ == nullptr) {
        if (next_file_ == files_.size()) return false;
        reader_ = open_documents(files_[next_file_++], options_);
      }
      if (auto document = reader_->next()) {
        ++documents_;
        rest_.document = std::make_shared<const std::string>(std::move(*document));
        rest_.text = *rest_.document;
        return true;
      }
      reader_ = nullptr;
    }
  }

  const std::vector<std::filesystem::path>& files_;
  const ReadOptions& options_;
  std::mutex mutex_;  // Guards all members below.
  size_t next_file_ = 0;
  std::unique_ptr<DocumentReader> reader_;
  TextPart rest_;
  int64_t documents_ = 0;
  std::exception_ptr error_;
};

void count_words(TextParts* parts, WordPattern pattern, WordCounts* counts) {
  try {
    const WordScanner scanner(pattern);
    while (const auto part = parts->next())
      scanner.for_each_word(part->text, [&](std::string_view word) { counts->add(word); });
  } catch (...) {
    parts->stop(std::current_exception());
  }
}

WordCounts count_on_threads(TextParts* parts, const TrainByteBpeOptions& options) {
  std::vector<WordCounts> counts(static_cast<size_t>(options.threads));
  std::vector<std::thread> threads;
  threads.reserve(counts.size());
  try {
    for (size_t i = 1; i < counts.size(); ++i)
      threads.push_back(start_thread([&, i] { count_words(parts, options.pattern, &counts[i]); }));
  } catch (const Error&) {
    // Fewer threads do the same.
  }
  count_words(parts, options.pattern, &counts[0]);
  for (std::thread& thread : threads) thread.join();
  if (parts->error()) std::rethrow_exception(parts->error());
  for (; counts.size() > 1; counts.pop_back()) counts[0].add(counts.back());
  return std::move(counts[0]);
}

std::string added_tokens_json(const std::vector<std::string>& tokens) {
  int64_t id = 0;
  return json_list(
      tokens,
      [&](const std::string& token) {
        return fmt::format(
            R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
            R"("normalized":false,"special":true}})",
            id++, json_quoted(token));
      },
      ",");
}

std::string vocabulary_json(const ByteBpe& model) {
  std::string json;
  for (size_t id = 0; id < model.vocabulary.size(); ++id)
    json += fmt::format("{}{}:{}", id == 0 ? "" : ",", json_quoted(model.vocabulary[id]), id);
  return json;
}

std::string merges_json(const ByteBpe& model) {
  return json_list(
      model.merges,
      [&](const std::pair<int32_t, int32_t>& merge) {
        const auto name = [&](int32_t id) {
          return json_quoted(model.vocabulary[static_cast<size_t>(id)]);
        };
        return fmt::format("[{},{}]", name(merge.first), name(merge.second));
      },
      ",");
}

// As tokenizers writes it.
std::string tokenizer_json(const ByteBpe& model, const TrainByteBpeOptions& options) {
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},"normalizer":null,)"
      R"("pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":)"
      R"({{"Regex":{}}},"behavior":"Isolated","invert":false}},{{"type":"ByteLevel",)"
      R"("add_prefix_space":false,"trim_offsets":true,"use_regex":false}}]}},)"
      R"("post_processor":null,"decoder":{{"type":"ByteLevel","add_prefix_space":true,)"
      R"("trim_offsets":true,"use_regex":true}},"model":{{"type":"BPE","dropout":null,)"
      R"("unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{{{}}},)"
      R"("merges":{}}}}})",
      added_tokens_json(options.model.special_tokens), json_quoted(pattern_source(options.pattern)),
      vocabulary_json(model), merges_json(model));
}

}  // namespace

TrainedByteBpe train_byte_bpe(const std::vector<std::filesystem::path>& files,
                              const TrainByteBpeOptions& options,
                              const std::filesystem::path& output) {
  TextParts parts(files, options.read);
  WordCounts counts = count_on_threads(&parts, options);
  TrainedByteBpe trained{.documents = parts.documents(), .words = std::ssize(counts.words())};
  if (trained.words == 0) fail("the input has no text to train a tokenizer on");
  const ByteBpe model = train_byte_bpe(std::move(counts), options.model);
  write_file_atomically(output, tokenizer_json(model, options));
  trained.tokens = std::ssize(model.vocabulary);
  return trained;
}

}  // namespace tessera
