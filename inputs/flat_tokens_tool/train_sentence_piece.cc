// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool/train_sentence_piece.h"

#include <sentencepiece_trainer.h>

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/io/file.h"
#include "inputs/readers/document_format.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

// SentencePiece drops longer lines.
constexpr size_t kLongestLine = 4000;

// Removes and returns the next line of a text. Cuts long lines, at a space if there is one.
std::string_view take_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  if (end <= kLongestLine) {
    const std::string_view line = text->substr(0, end);
    text->remove_prefix(std::min(end + 1, text->size()));
    return line;
  }
  size_t cut = text->rfind(' ', kLongestLine);
  if (cut == std::string_view::npos || cut == 0)
    cut = character_before(*text, kLongestLine);  // At a character boundary.
  const std::string_view line = text->substr(0, cut);
  text->remove_prefix(cut);
  return line;
}

// The lines of all documents, as SentencePiece's iterator. An exception must not pass through the
// library: it ends the lines and is rethrown after training.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const std::vector<std::filesystem::path>& files, const ReadOptions& options)
      : files_(files), options_(options) {
    Next();
  }

  bool done() const override { return is_done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    try {
      advance();
    } catch (...) {
      failure_ = std::current_exception();
      is_done_ = true;
    }
  }

  const std::exception_ptr& failure() const { return failure_; }
  const TrainedSentencePiece& report() const { return report_; }

 private:
  void advance() {
    while (true) {
      while (rest_.empty())
        if (!next_document()) return void(is_done_ = true);
      line_ = take_line(&rest_);
      if (line_.empty()) continue;
      ++report_.lines;
      return;
    }
  }

  bool next_document() {
    while (true) {
      if (reader_ == nullptr) {
        if (next_file_ == files_.size()) return false;
        reader_ = open_documents(files_[next_file_++], options_);
      }
      if (auto document = reader_->next()) {
        ++report_.documents;
        document_ = std::move(*document);
        rest_ = document_;
        return true;
      }
      report_.skipped.add(reader_->corrupt());
      reader_ = nullptr;
    }
  }

  const std::vector<std::filesystem::path>& files_;
  const ReadOptions& options_;
  size_t next_file_ = 0;
  std::unique_ptr<DocumentReader> reader_;
  std::string document_;
  std::string_view rest_;  // Rest of document_.
  std::string line_;
  bool is_done_ = false;
  std::exception_ptr failure_;
  TrainedSentencePiece report_;
};

std::unordered_map<std::string, std::string> arguments_of(
    const TrainSentencePieceOptions& options) {
  return {{"model_type", std::string(enum_name(options.model))},
          {"vocab_size", fmt::format("{}", options.vocab_size)},
          {"character_coverage", fmt::format("{}", options.character_coverage)},
          {"input_sentence_size", fmt::format("{}", options.max_lines)},
          {"shuffle_input_sentence", "true"},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"split_digits", "true"},
          {"byte_fallback", "true"},
          {"minloglevel", "2"}};
}

// Removes the source location and the failed condition at the start of library messages.
std::string_view reason_of(const sentencepiece::util::Status& status) {
  const std::string_view message = status.message();
  const size_t condition = message.rfind("] ");
  return condition == std::string_view::npos ? message : message.substr(condition + 2);
}

}  // namespace

TrainedSentencePiece train_sentence_piece(const std::vector<std::filesystem::path>& files,
                                          const TrainSentencePieceOptions& options,
                                          const std::filesystem::path& output) {
  Lines lines(files, options.read);
  std::string model;
  sentencepiece::util::Status status;
  // The library's random generators are per thread, seeded at first use.
  std::exception_ptr error;
  start_thread([&] {
    try {
      sentencepiece::SetRandomGeneratorSeed(1);
      status = sentencepiece::SentencePieceTrainer::Train(arguments_of(options), &lines, &model);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  if (lines.failure()) std::rethrow_exception(lines.failure());
  if (lines.report().lines == 0) fail("the input has no text to train a tokenizer on");
  if (!status.ok())
    fail("SentencePiece cannot train a model on {} lines of text: {}", lines.report().lines,
         reason_of(status));
  write_file_atomically(output, model);
  return lines.report();
}

}  // namespace tessera
